"""The outbox: events are written in the business transaction, and relayed after it in order and at
least once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Index,
    ScalarSelect,
    Select,
    Subquery,
    Text,
    UniqueConstraint,
    and_,
    cast,
    exists,
    func,
    or_,
    select,
    text,
    union_all,
    update,
)
from sqlalchemy.orm import Mapped, Session, aliased, mapped_column

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.events import Event
from automation_pipeline.storage.group_commit import write_before_commit
from automation_pipeline.storage.statements import database_now, database_time, is_postgres, upsert
from automation_pipeline.storage.types import BigId, Json, JsonObject, Table, UtcDateTime

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
    # The fiche in the payload of the event, for clients that follow one fiche.
    fiche_id: Mapped[str | None]
    # PostgreSQL's number of the transaction that wrote the row. The stream of events waits for
    # older transactions to end.
    transaction_id: Mapped[int | None] = mapped_column(BigInteger)


def enqueue(session: Session, events: Sequence[Event]) -> None:
    """Events with the same correlation id are relayed in this order. They are available from the
    database's present."""
    if events:
        write_before_commit(session, _add, events)


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
            "fiche_id": fiche_id
            if isinstance(fiche_id := event.payload.get("fiche_id"), str)
            else None,
            "available_at": now,
            "attempts": 0,
        }
        for event in events
    ]
    if is_postgres(session):
        # `upsert` inserts rows in the order of their keys, but they are relayed in the order of their ids, which
        # is the caller's.
        numbers = (
            func.nextval("events_outbox_id_seq"),
            cast(cast(func.pg_current_xact_id(), Text), BigInteger),
        )
        given = session.execute(
            select(*numbers).select_from(func.generate_series(1, len(rows)).table_valued("number"))
        ).tuples()
        rows = [
            {"id": id_, "transaction_id": by, **row}
            for (id_, by), row in zip(given, rows, strict=True)
        ]
    upsert(session, OutboxRow, rows, key=("tenant_id", "event_key"))


def claim_waiting(
    session: Session,
    worker: str,
    *,
    limit: int,
    hold_seconds: float,
    only: str | None = None,
    caused_since: datetime | None = None,
) -> list[ClaimedEvent]:
    """Claim the oldest waiting events until the hold ends. Two workers never get the same row.
    `only` restricts the claim to events of this name, `caused_since` to aggregates with an event
    since this instant. Where the order matters, use `claim_in_order`."""
    named = [OutboxRow.event_name == only] if only else []
    oldest = (
        select(OutboxRow.id)
        .where(*_claimable(), *named, *of_aggregates_since(caused_since))
        .order_by(OutboxRow.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = _claim(session, oldest, worker, hold_seconds, attempts=OutboxRow.attempts + 1)
    return [ClaimedEvent(row.id, row.attempts, event_in(row)) for row in rows]


def _claim(
    session: Session, oldest: Select[tuple[int]], worker: str, hold_seconds: float, **values: object
) -> list[OutboxRow]:
    # A common table expression runs once. PostgreSQL may repeat a subquery, which with SKIP LOCKED
    # finds other rows each time.
    chosen = oldest.cte("oldest")
    claimed = session.scalars(
        update(OutboxRow)
        .where(OutboxRow.id.in_(select(chosen.c.id)))
        .values(claimed_by=worker, claimed_until=database_now(hold_seconds), **values)
        .returning(OutboxRow)
        .execution_options(synchronize_session=False)
    )
    return sorted(claimed, key=lambda row: row.id)


def is_waiting(session: Session, caused_since: datetime | None = None) -> bool:
    """Whether there is an event to claim. It only reads, whereas a claim queues with all writers."""
    query = select(OutboxRow.id).where(*_claimable(), *of_aggregates_since(caused_since)).limit(1)
    return session.scalar(query) is not None


def of_aggregates_since(instant: datetime | None) -> list[ColumnElement[bool]]:
    """All waiting events of the aggregates that have an event since this instant, so that their
    order is kept."""
    if instant is None:
        return []
    newer = aliased(OutboxRow)
    touched = select(newer.correlation_id).where(
        newer.published_at.is_(None), newer.available_at >= instant
    )
    return [OutboxRow.correlation_id.in_(touched)]


def _claimable() -> tuple[ColumnElement[bool], ...]:
    free = or_(OutboxRow.claimed_until.is_(None), OutboxRow.claimed_until <= database_now())
    return OutboxRow.published_at.is_(None), OutboxRow.available_at <= database_now(), free


def mark_waiting_published(
    session: Session, *, limit: int, except_name: str, caused_since: datetime | None = None
) -> int:
    """Mark the oldest waiting events as published, except those of the name `except_name`, and return their
    number. For installations without a publisher."""
    lock_publishing(session)
    waiting = (
        select(OutboxRow.id)
        .where(
            *_claimable(), OutboxRow.event_name != except_name, *of_aggregates_since(caused_since)
        )
        .order_by(OutboxRow.id)
        .limit(limit)
    )
    published = session.scalars(
        update(OutboxRow)
        .where(OutboxRow.id.in_(waiting))
        .values(published_at=database_now(), claimed_by=None, claimed_until=None, last_error=None)
        .returning(OutboxRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(published.all())


def mark_published(session: Session, worker: str, ids: Sequence[int]) -> None:
    _change(session, worker, ids, published_at=database_now(), last_error=None, **_UNCLAIMED)


def put_back(
    session: Session, worker: str, event_id: int, *, error: str, delay_seconds: float
) -> None:
    later = database_now(delay_seconds)
    _change(session, worker, [event_id], available_at=later, last_error=error, **_UNCLAIMED)


def park(session: Session, worker: str, event_id: int, *, error: str) -> None:
    """Parked events are not claimed again. They stay unpublished, so that an operator can find and
    release them."""
    _change(session, worker, [event_id], available_at=NEVER, last_error=error, **_UNCLAIMED)


def count_attempts(session: Session, worker: str, ids: Sequence[int]) -> None:
    """Count a failed attempt. Call it before the events are handed back or parked, so that a worker
    that dies uses no attempt."""
    _change(session, worker, ids, attempts=OutboxRow.attempts + 1)


def hand_back(session: Session, worker: str, ids: Sequence[int], *, error: str | None) -> None:
    """Release events that were not tried, or that failed for a reason that is not theirs. Call
    `lock_publishing` first."""
    _change(session, worker, ids, last_error=error, **_UNCLAIMED)


_UNCLAIMED: Mapping[str, None] = {"claimed_by": None, "claimed_until": None}


def _change(session: Session, worker: str, ids: Sequence[int], **values: object) -> None:
    """Change the events that the worker still holds."""
    if ids:
        session.execute(
            update(OutboxRow)
            .where(OutboxRow.id.in_(ids), OutboxRow.claimed_by == worker)
            .values(**values)
            .execution_options(synchronize_session=False)
        )


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


_TURN = 7_163_402_551_906  # the key of the advisory lock, any number


def claim_in_order(
    session: Session,
    worker: str,
    *,
    limit: int,
    hold_seconds: float,
    except_name: str,
    caused_since: datetime | None = None,
) -> list[ClaimedEvent]:
    """Claim the oldest events that can be published now, except those of the name `except_name`. It skips
    aggregates with an earlier event that is held or waits for its next attempt; parked events do
    not block later ones. A claim is not an attempt yet."""
    lock_publishing(session)
    now = select(
        database_now()
    ).scalar_subquery()  # read once, so that an index can be searched for it
    unpublished = OutboxRow.published_at.is_(None), OutboxRow.event_name != except_name
    free = or_(OutboxRow.claimed_until.is_(None), OutboxRow.claimed_until <= now)
    stuck = _blocking_events(except_name, now)
    oldest = (
        select(OutboxRow.id)
        .where(
            *unpublished,
            OutboxRow.available_at <= now,
            free,
            ~exists().where(
                stuck.c.correlation_id == OutboxRow.correlation_id, stuck.c.id < OutboxRow.id
            ),
            *of_aggregates_since(caused_since),
        )
        .order_by(OutboxRow.id)
        .limit(limit)
    )
    rows = _claim(session, oldest, worker, hold_seconds)
    return [ClaimedEvent(row.id, row.attempts + 1, event_in(row)) for row in rows]


def _blocking_events(except_name: str, now: ScalarSelect[datetime]) -> Subquery:
    """The first event of each aggregate that cannot be published now: few rows, even if the queue
    is long."""
    row = aliased(OutboxRow)
    unpublished = row.published_at.is_(None), row.event_name != except_name
    stuck = union_all(
        select(row.correlation_id, row.id).where(*unpublished, row.claimed_until > now),
        select(row.correlation_id, row.id).where(
            *unpublished, row.available_at > now, row.available_at < NEVER
        ),
    ).subquery()
    return (
        select(stuck.c.correlation_id, func.min(stuck.c.id).label("id"))
        .group_by(stuck.c.correlation_id)
        .subquery()
    )


def lock_publishing(session: Session) -> None:
    """Until its transaction ends, only this process claims events or hands them back. SQLite has
    only one writer."""
    # A separate statement, so that the next one sees what the previous holder committed.
    if is_postgres(session):
        session.execute(select(func.pg_advisory_xact_lock(_TURN)))


_WRITTEN = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,18})")


@dataclass(frozen=True)
class Bookmark:
    """A position in the stream: all events of transactions before `since`, and events up to `id` of
    transactions before `until`. On SQLite, which has one writer at a time, the id is enough."""

    since: int = 0
    until: int = 0
    id: int = 0

    def __str__(self) -> str:
        return f"{self.since}-{self.until}-{self.id}"

    @classmethod
    def read(cls, text: str) -> "Bookmark":
        """Raises InvalidInputError if the text is not a bookmark of this stream."""
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise InvalidInputError(
                "No such event", (("Last-Event-ID", "it is not an id that this stream has sent"),)
            )
        return cls(*map(int, match.groups()))


BEGINNING = Bookmark()


def events_after(
    session: Session,
    after: Bookmark,
    *,
    correlation_id: str | None = None,
    fiche_id: str | None = None,
    limit: int,
) -> list[tuple[Bookmark, Event]]:
    """The next events of the run or of the fiche, each with its bookmark. Internal events are left
    out.

    An event is shown only after all transactions that began earlier have ended.
    """
    if (correlation_id is None) == (fiche_id is None):
        raise ValueError("Events are followed by a correlation id or by a fiche's id.")
    followed = (
        OutboxRow.fiche_id == fiche_id
        if correlation_id is None
        else OutboxRow.correlation_id == correlation_id
    )
    shown = followed, OutboxRow.event_name.not_like("%/%")
    if not is_postgres(session):
        return _page(session, (*shown, OutboxRow.id > after.id), Bookmark(), limit)
    settled = _oldest_open_transaction(session)
    if after.until > settled:  # a bookmark of another cluster: the ids came along with the dump
        after = Bookmark(0, settled, after.id)
    started = _written_within(after.since, after.until)
    found = _page(session, (*shown, *started, OutboxRow.id > after.id), after, limit)
    if len(found) < limit and settled > after.until:
        opened = Bookmark(after.until, settled)
        fresh = _written_within(opened.since, opened.until)
        found += _page(session, (*shown, *fresh), opened, limit - len(found))
    return found


def newest_bookmark(session: Session) -> Bookmark:
    if is_postgres(session):
        settled = _oldest_open_transaction(session)
        return Bookmark(settled, settled)
    return Bookmark(id=session.scalar(select(func.max(OutboxRow.id))) or 0)


def is_withheld(session: Session, correlation_id: str) -> bool:
    """Whether an event of the run is written but not shown yet, because an older transaction has
    not ended."""
    if not is_postgres(session):
        return False
    late = (
        OutboxRow.transaction_id >= _oldest_open_transaction(session),
        OutboxRow.transaction_id < _next_transaction(),
    )
    of_run = OutboxRow.correlation_id == correlation_id
    return session.scalar(select(OutboxRow.id).where(of_run, *late).limit(1)) is not None


def _page(
    session: Session, conditions: tuple[ColumnElement[bool], ...], window: Bookmark, limit: int
) -> list[tuple[Bookmark, Event]]:
    rows = session.scalars(select(OutboxRow).where(*conditions).order_by(OutboxRow.id).limit(limit))
    return [(Bookmark(window.since, window.until, row.id), event_in(row)) for row in rows]


def _written_within(since: int, until: int) -> tuple[ColumnElement[bool], ...]:
    within = and_(OutboxRow.transaction_id >= since, OutboxRow.transaction_id < until)
    if since == 0 and until > 0:
        return (or_(within, OutboxRow.transaction_id >= _next_transaction()),)
    return (within,)


def _oldest_open_transaction(session: Session) -> int:
    """The number below which all transactions have ended, so that no event can be added there."""
    oldest_running = func.pg_snapshot_xmin(func.pg_current_snapshot())
    return session.scalars(select(cast(cast(oldest_running, Text), BigInteger))).one()


def _next_transaction() -> ColumnElement[int]:
    """Above the numbers of all transactions that the statement sees."""
    return cast(cast(func.pg_snapshot_xmax(func.pg_current_snapshot()), Text), BigInteger)


@dataclass(frozen=True)
class OutboxStatus:
    """`lag_seconds` is the age of the oldest waiting event, or 0. `parked` events need an operator."""

    waiting: int
    parked: int
    lag_seconds: float


def outbox_status(session: Session) -> OutboxStatus:
    row = OutboxRow
    waits = row.available_at < NEVER
    counts = (
        func.count().filter(waits),
        func.count().filter(row.available_at >= NEVER),
        func.min(row.occurred_at).filter(waits),
    )
    waiting, parked, oldest = (
        session.execute(select(*counts).where(row.published_at.is_(None))).tuples().one()
    )
    lag = (database_time(session) - oldest).total_seconds() if waiting else 0.0
    return OutboxStatus(waiting, parked, max(0.0, lag))
