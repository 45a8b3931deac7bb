"""Rows that say how their own webhook stands, as alerts do: which are due, who carries them, what became of it."""

from datetime import datetime
from typing import Protocol, TypeVar

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import Mapped, Session

from automation_pipeline.core.delivery import Delivery, DeliveryStatus
from automation_pipeline.storage.instants import database_now


class Told(Protocol):
    """The columns of such a table. `attempts` counts the claims."""

    id: Mapped[int]
    status: Mapped[str]
    attempts: Mapped[int]
    status_code: Mapped[int | None]
    last_error: Mapped[str | None]
    next_retry_at: Mapped[datetime]
    sent_at: Mapped[datetime | None]


Row = TypeVar("Row", bound=Told)


def is_any_due(session: Session, row: type[Told]) -> bool:
    return session.scalar(select(row.id).where(*_due(row)).limit(1)) is not None


def claim_oldest(session: Session, row: type[Row], *, limit: int, hold_seconds: float) -> list[Row]:
    """Nobody else gets them until the hold ends; each claim is an attempt, also of somebody who dies over it."""
    oldest = (
        select(row.id)
        .where(*_due(row))
        .order_by(row.next_retry_at, row.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("oldest")  # run once: PostgreSQL may repeat a subquery, and with SKIP LOCKED each time finds other rows
    )
    claimed = session.scalars(
        update(row)
        .where(row.id.in_(select(oldest.c.id)))
        .values(attempts=row.attempts + 1, next_retry_at=database_now(hold_seconds))
        .returning(row)
        .execution_options(synchronize_session=False)
    ).all()
    return sorted(claimed, key=lambda one: one.id)


def record_attempt(session: Session, row: type[Told], id_: int, attempt: int, delivery: Delivery) -> None:
    """Nothing, when somebody else has claimed it since."""
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
        )
        .execution_options(synchronize_session=False)
    )


def _due(row: type[Told]) -> tuple[ColumnElement[bool], ...]:
    return row.status == DeliveryStatus.PENDING, row.next_retry_at <= database_now()
