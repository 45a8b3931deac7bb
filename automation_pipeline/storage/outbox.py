"""Events leave by here: written in the business transaction, relayed after commit, at least once.

`outbox_order.py` claims them in the order of their aggregates, `outbox_reading.py` shows them to who follows one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Index,
    Text,
    UniqueConstraint,
    cast,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.orm import Mapped, Session, aliased, mapped_column

from automation_pipeline.core.events import Event
from automation_pipeline.storage.bulk import is_postgres, upsert
from automation_pipeline.storage.group_commit import write_at_the_end
from automation_pipeline.storage.instants import database_now, database_time
from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, Json, JsonObject, UtcDateTime

NEVER = datetime(9000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ClaimedEvent:
    id: int
    attempt: int
    event: Event


class OutboxRow(Table):
    __tablename__ = "events_outbox"
    __table_args__ = (
        UniqueConstraint("tenant_id", "event_key"),
        Index(
            "ix_events_outbox_waiting",
            "available_at",
            "id",
            postgresql_where=text("published_at IS NULL"),
            sqlite_where=text("published_at IS NULL"),
        ),
        Index(
            "ix_events_outbox_unpublished",
            "id",
            postgresql_where=text("published_at IS NULL"),
            sqlite_where=text("published_at IS NULL"),
        ),
        Index(
            "ix_events_outbox_claimed",
            "claimed_until",
            postgresql_where=text("claimed_until IS NOT NULL"),
            sqlite_where=text("claimed_until IS NOT NULL"),
        ),
        Index(None, "correlation_id", "transaction_id", "id"),
        Index(None, "fiche_id", "transaction_id", "id"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    tenant_id: Mapped[str]
    event_key: Mapped[str]
    event_name: Mapped[str]
    producer: Mapped[str]
    correlation_id: Mapped[str]
    occurred_at: Mapped[datetime] = mapped_column(UtcDateTime)
    payload: Mapped[JsonObject] = mapped_column(Json)
    available_at: Mapped[datetime] = mapped_column(UtcDateTime)
    claimed_by: Mapped[str | None]
    claimed_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    attempts: Mapped[int] = mapped_column(default=0)
    last_error: Mapped[str | None]
    published_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # The fiche that the event is about, out of its payload, for those who follow one.
    fiche_id: Mapped[str | None]
    # PostgreSQL's number of the transaction that wrote the row: those who follow events wait for older ones to end.
    transaction_id: Mapped[int | None] = mapped_column(BigInteger)


def enqueue(session: Session, events: Sequence[Event]) -> None:
    """Those of one correlation id are relayed in this order. When they may leave, the database's clock says."""
    if events:
        write_at_the_end(session, _add, events)


def _add(session: Session, events: Sequence[Event]) -> None:
    now = database_time(session)
    rows = [
        {
            "tenant_id": event.tenant_id,
            "event_key": event.key,
            "event_name": event.name,
            "producer": event.producer,
            "correlation_id": event.correlation_id,
            "occurred_at": event.occurred_at,
            "payload": event.payload,
            "fiche_id": _text(event.payload.get("fiche_id")),
            "available_at": now,
            "attempts": 0,
        }
        for event in events
    ]
    if is_postgres(session):
        # Rows go in the order of their keys there, but are relayed in the order of their ids, which is the caller's.
        numbers = (func.nextval("events_outbox_id_seq"), cast(cast(func.pg_current_xact_id(), Text), BigInteger))
        given = session.execute(select(*numbers).select_from(_as_many_as(rows))).tuples()
        rows = [{"id": id_, "transaction_id": by, **row} for (id_, by), row in zip(given, rows, strict=True)]
    upsert(session, OutboxRow, rows, key=("tenant_id", "event_key"))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _as_many_as(rows: Sequence[object]) -> FromClause:
    return func.generate_series(1, len(rows)).table_valued("number")


def claim_waiting(
    session: Session,
    worker: str,
    *,
    limit: int,
    hold_seconds: float,
    only: str | None = None,
    caused_since: datetime | None = None,
) -> list[ClaimedEvent]:
    """Oldest first; nobody else gets them until the hold ends. Two workers claiming at once never get the same row.
    `only` is the name of the events wanted, `caused_since` restricts them to aggregates that have newer events. Where
    their order counts, `outbox_order.py` claims them."""
    named: list[ColumnElement[bool]] = [OutboxRow.event_name == only] if only else []
    named += of_aggregates_since(caused_since)
    oldest = (
        select(OutboxRow.id)
        .where(*_claimable(), *named)
        .order_by(OutboxRow.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("oldest")  # run once: PostgreSQL may repeat a subquery, and with SKIP LOCKED each time finds other rows
    )
    claimed = session.scalars(
        update(OutboxRow)
        .where(OutboxRow.id.in_(select(oldest.c.id)))
        .values(claimed_by=worker, claimed_until=database_now(hold_seconds), attempts=OutboxRow.attempts + 1)
        .returning(OutboxRow)
        .execution_options(synchronize_session=False)
    )
    return [claimed_event(row) for row in sorted(claimed, key=lambda row: row.id)]


def is_waiting(session: Session, caused_since: datetime | None = None) -> bool:
    """There is something to claim. It only reads, where a claim would stand in line with the writers for nothing."""
    query = select(OutboxRow.id).where(*_claimable(), *of_aggregates_since(caused_since)).limit(1)
    return session.scalar(query) is not None


def of_aggregates_since(instant: datetime | None) -> list[ColumnElement[bool]]:
    """All waiting events of the aggregates that have an event from this instant on, so that their order holds."""
    if instant is None:
        return []
    newer = aliased(OutboxRow)
    touched = select(newer.correlation_id).where(newer.published_at.is_(None), newer.available_at >= instant)
    return [OutboxRow.correlation_id.in_(touched)]


def _claimable() -> tuple[ColumnElement[bool], ...]:
    free = or_(OutboxRow.claimed_until.is_(None), OutboxRow.claimed_until <= database_now())
    return OutboxRow.published_at.is_(None), OutboxRow.available_at <= database_now(), free


def mark_published(session: Session, worker: str, ids: Sequence[int]) -> None:
    session.execute(
        update(OutboxRow)
        .where(OutboxRow.id.in_(ids), OutboxRow.claimed_by == worker)
        .values(published_at=database_now(), claimed_by=None, claimed_until=None, last_error=None)
        .execution_options(synchronize_session=False)
    )


def put_back(session: Session, worker: str, event_id: int, *, error: str, delay_seconds: float) -> None:
    put_all_back(session, worker, [event_id], error=error, delay_seconds=delay_seconds)


def put_all_back(session: Session, worker: str, ids: Sequence[int], *, error: str, delay_seconds: float) -> None:
    _let_go(session, worker, ids, error, database_now(delay_seconds))


def park(session: Session, worker: str, event_id: int, *, error: str) -> None:
    """Nobody claims it again. It stays unpublished, so that it can be found, and put back by hand."""
    _let_go(session, worker, [event_id], error, NEVER)


def _let_go(
    session: Session, worker: str, ids: Sequence[int], error: str, available_at: datetime | database_now
) -> None:
    session.execute(
        update(OutboxRow)
        .where(OutboxRow.id.in_(ids), OutboxRow.claimed_by == worker)
        .values(available_at=available_at, claimed_by=None, claimed_until=None, last_error=error)
        .execution_options(synchronize_session=False)
    )


def claimed_event(row: OutboxRow) -> ClaimedEvent:
    """Of a claim that was counted as an attempt."""
    return ClaimedEvent(row.id, row.attempts, event_in(row))


def event_in(row: OutboxRow) -> Event:
    return Event(
        tenant_id=row.tenant_id,
        key=row.event_key,
        name=row.event_name,
        producer=row.producer,
        correlation_id=row.correlation_id,
        occurred_at=row.occurred_at,
        payload=row.payload,
    )
