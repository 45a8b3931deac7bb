"""Deliveries of webhooks that wait in a table: claim the oldest, send them, and record the result."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import Mapped, Session

from automation_pipeline.core.webhooks import (
    INTERRUPTED,
    Delivery,
    DeliveryPolicy,
    DeliveryStatus,
    WebhookAnswer,
    attempt,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.database import Session as DatabaseSession
from automation_pipeline.storage.statements import database_now, database_time


class DeliveryColumns(Protocol):
    """The columns of a table with deliveries. `attempts` counts the claims."""

    id: Mapped[int]
    status: Mapped[str]
    attempts: Mapped[int]
    status_code: Mapped[int | None]
    last_error: Mapped[str | None]
    next_retry_at: Mapped[datetime]
    sent_at: Mapped[datetime | None]


Row = TypeVar("Row", bound=DeliveryColumns)


def is_any_due(
    session: Session, row: type[DeliveryColumns], *conditions: ColumnElement[bool]
) -> bool:
    query = select(row.id).where(*_due(row), *conditions)
    return session.scalar(query.limit(1)) is not None


def claim_oldest(
    session: Session,
    row: type[Row],
    *conditions: ColumnElement[bool],
    limit: int,
    hold_seconds: float,
) -> list[Row]:
    """Claim the oldest due deliveries that meet the conditions, for `hold_seconds`. Each claim counts
    as an attempt, even if its worker dies."""
    oldest = (
        select(row.id)
        .where(*_due(row), *conditions)
        .order_by(row.next_retry_at, row.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte(
            "oldest"
            # A CTE runs once. PostgreSQL may repeat a subquery, and SKIP LOCKED finds other rows
            # each time.
        )
    )
    claimed = session.scalars(
        update(row)
        .where(row.id.in_(select(oldest.c.id)))
        .values(attempts=row.attempts + 1, next_retry_at=database_now(hold_seconds))
        .returning(row)
        .execution_options(synchronize_session=False)
    ).all()
    return sorted(claimed, key=lambda one: one.id)


def record_attempt(
    session: Session,
    row: type[DeliveryColumns],
    id_: int,
    attempt: int,
    delivery: Delivery,
    **columns: object,
) -> None:
    """Record the result, unless another worker has claimed the delivery since. `columns` are
    further columns to set."""
    is_sent = delivery.status is DeliveryStatus.SENT
    session.execute(
        update(row)
        .where(row.id == id_, row.attempts == attempt, row.status == DeliveryStatus.PENDING)
        .values(
            status=delivery.status.value,
            status_code=delivery.status_code,
            last_error=delivery.error,
            next_retry_at=database_now(delivery.pause_seconds),
            sent_at=database_now() if is_sent else None,
            **columns,
        )
        .execution_options(synchronize_session=False)
    )


def _due(row: type[DeliveryColumns]) -> tuple[ColumnElement[bool], ...]:
    return row.status == DeliveryStatus.PENDING, row.next_retry_at <= database_now()


BROKE_OFF = "Its delivery broke off every time"


class ClaimedDelivery(Protocol):
    @property
    def attempt(self) -> int: ...


Due = TypeVar("Due", bound=ClaimedDelivery)


@dataclass(frozen=True)
class DeliveryQueue(Generic[Due]):
    """How to find, claim and record waiting messages of one kind. Each claim is an attempt; a
    result that is recorded after a later claim has no effect."""

    is_due: Callable[[DatabaseSession], bool]
    claim: Callable[[DatabaseSession], Sequence[Due]]
    record: Callable[[DatabaseSession, Due, Delivery], None]


async def deliver_waiting(
    queue: DeliveryQueue[Due],
    send: Callable[[Due, datetime], Awaitable[WebhookAnswer | None]],
    *,
    policy: DeliveryPolicy,
    database: Database,
) -> int:
    """Try to deliver a batch, and return how many were tried. It takes no longer than one attempt.
    A process that dies between sending and recording has used an attempt; the receiver recognises a
    repeated message by its delivery id. `send` receives the database's time."""
    with database.reading() as session:
        if not queue.is_due(session):  # a claim would queue up with the writers for nothing
            return 0
    with database.transaction() as session:
        claimed, now = queue.claim(session), database_time(session)

    async def deliver(due: Due) -> None:
        if due.attempt > policy.attempts:
            delivery = Delivery(DeliveryStatus.FAILED, due.attempt, error=BROKE_OFF)
        else:
            try:
                delivery = await attempt(send(due, now), due.attempt, policy)
            except asyncio.CancelledError:  # another relay need not wait for the end of the hold
                record(due, Delivery(DeliveryStatus.PENDING, due.attempt, error=INTERRUPTED))
                raise
        record(due, delivery)

    def record(due: Due, delivery: Delivery) -> None:
        with database.transaction() as session:
            queue.record(session, due, delivery)

    ended = await asyncio.gather(*map(deliver, claimed), return_exceptions=True)
    for broken in ended:  # after the others are through: the database does not answer
        if broken is not None:
            raise broken
    return len(claimed)
