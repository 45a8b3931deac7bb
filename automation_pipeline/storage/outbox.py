"""The outbox: events are written in the business transaction and relayed after it, at least once,
in order."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Index,
    ScalarSelect,
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
from automation_pipeline.storage.clock import database_now, database_time
from automation_pipeline.storage.group_commit import write_before_commit
from automation_pipeline.storage.statements import is_postgres, upsert
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
    # The fiche that the event is about, out of its payload, for those who follow one.
    fiche_id: Mapped[str | None]
    # PostgreSQL's number of the transaction that wrote the row: those who follow events wait for
    # older ones to end.
    transaction_id: Mapped[int | None] = mapped_column(BigInteger)


def enqueue(session: Session, events: Sequence[Event]) -> None:
    """Those of one correlation id are relayed in this order. When they may leave, the database's
    clock says."""
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
            "fiche_id": _text(event.payload.get("fiche_id")),
            "available_at": now,
            "attempts": 0,
        }
        for event in events
    ]
    if is_postgres(session):
        # Rows go in the order of their keys there, but are relayed in the order of their ids, which
        # is the caller's.
        numbers = (
            func.nextval("events_outbox_id_seq"),
            cast(cast(func.pg_current_xact_id(), Text), BigInteger),
        )
        given = session.execute(select(*numbers).select_from(_as_many_as(rows))).tuples()
        rows = [
            {"id": id_, "transaction_id": by, **row}
            for (id_, by), row in zip(given, rows, strict=True)
        ]
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
    """Oldest first; nobody else gets them until the hold ends. Two workers claiming at once never
    get the same row. `only` is the name of the events wanted, `caused_since` restricts them to
    aggregates that have newer events. Where their order counts, `outbox_order.py` claims them."""
    named: list[ColumnElement[bool]] = [OutboxRow.event_name == only] if only else []
    named += of_aggregates_since(caused_since)
    oldest = (
        select(OutboxRow.id)
        .where(*_claimable(), *named)
        .order_by(OutboxRow.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte(
            "oldest"
            # run once: PostgreSQL may repeat a subquery, and with SKIP LOCKED each time finds other
            # rows
        )
    )
    claimed = session.scalars(
        update(OutboxRow)
        .where(OutboxRow.id.in_(select(oldest.c.id)))
        .values(
            claimed_by=worker,
            claimed_until=database_now(hold_seconds),
            attempts=OutboxRow.attempts + 1,
        )
        .returning(OutboxRow)
        .execution_options(synchronize_session=False)
    )
    return [claimed_event(row) for row in sorted(claimed, key=lambda row: row.id)]


def is_waiting(session: Session, caused_since: datetime | None = None) -> bool:
    """There is something to claim. It only reads, where a claim would stand in line with the
    writers for nothing."""
    query = select(OutboxRow.id).where(*_claimable(), *of_aggregates_since(caused_since)).limit(1)
    return session.scalar(query) is not None


def of_aggregates_since(instant: datetime | None) -> list[ColumnElement[bool]]:
    """All waiting events of the aggregates that have an event from this instant on, so that their
    order holds."""
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


def mark_published(session: Session, worker: str, ids: Sequence[int]) -> None:
    session.execute(
        update(OutboxRow)
        .where(OutboxRow.id.in_(ids), OutboxRow.claimed_by == worker)
        .values(published_at=database_now(), claimed_by=None, claimed_until=None, last_error=None)
        .execution_options(synchronize_session=False)
    )


def put_back(
    session: Session, worker: str, event_id: int, *, error: str, delay_seconds: float
) -> None:
    put_all_back(session, worker, [event_id], error=error, delay_seconds=delay_seconds)


def put_all_back(
    session: Session, worker: str, ids: Sequence[int], *, error: str, delay_seconds: float
) -> None:
    _let_go(session, worker, ids, error, database_now(delay_seconds))


def park(session: Session, worker: str, event_id: int, *, error: str) -> None:
    """Nobody claims it again. It stays unpublished, so that it can be found, and put back by
    hand."""
    _let_go(session, worker, [event_id], error, NEVER)


def _let_go(
    session: Session,
    worker: str,
    ids: Sequence[int],
    error: str,
    available_at: datetime | database_now,
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


_TURN = 7_163_402_551_906  # the key of our advisory lock, any number


def claim_in_order(
    session: Session,
    worker: str,
    *,
    limit: int,
    hold_seconds: float,
    but: str,
    caused_since: datetime | None = None,
) -> list[ClaimedEvent]:
    """The oldest that may go now, but those of that name. An aggregate with an earlier event that
    somebody else holds, or that waits for its next attempt, is passed over; parked ones hold up
    nobody. A claim is no attempt yet."""
    lock_publishing(session)
    now = select(
        database_now()
    ).scalar_subquery()  # read once, so that an index can be searched for it
    unpublished = OutboxRow.published_at.is_(None), OutboxRow.event_name != but
    free = or_(OutboxRow.claimed_until.is_(None), OutboxRow.claimed_until <= now)
    oldest = (
        select(OutboxRow.id)
        .where(
            *unpublished,
            OutboxRow.available_at <= now,
            free,
            ~_is_held_up(_stuck(but, now)),
            *of_aggregates_since(caused_since),
        )
        .order_by(OutboxRow.id)
        .limit(limit)
        .cte("oldest")
    )
    claimed = session.scalars(
        update(OutboxRow)
        .where(OutboxRow.id.in_(select(oldest.c.id)))
        .values(claimed_by=worker, claimed_until=database_now(hold_seconds))
        .returning(OutboxRow)
        .execution_options(synchronize_session=False)
    )
    return [
        ClaimedEvent(row.id, row.attempts + 1, event_in(row))
        for row in sorted(claimed, key=lambda row: row.id)
    ]


def _stuck(but: str, now: ScalarSelect[datetime]) -> Subquery:
    """The first event of each aggregate that cannot go now: few, whatever the backlog."""
    row = aliased(OutboxRow)
    unpublished = row.published_at.is_(None), row.event_name != but
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


def _is_held_up(stuck: Subquery) -> ColumnElement[bool]:
    return exists().where(
        stuck.c.correlation_id == OutboxRow.correlation_id, stuck.c.id < OutboxRow.id
    )


def count_attempts(session: Session, worker: str, ids: Sequence[int]) -> None:
    """They were tried in vain. Counted before they are put back or parked: a worker that dies uses
    up no attempt."""
    ours = OutboxRow.id.in_(ids), OutboxRow.claimed_by == worker
    tried = {"attempts": OutboxRow.attempts + 1}
    if ids:
        session.execute(
            update(OutboxRow)
            .where(*ours)
            .values(tried)
            .execution_options(synchronize_session=False)
        )


def hand_back(session: Session, worker: str, ids: Sequence[int], *, error: str | None) -> None:
    """They were not tried, or it was not about them. Whoever settles claims takes a turn first."""
    ours = OutboxRow.id.in_(ids), OutboxRow.claimed_by == worker
    untried = {"claimed_by": None, "claimed_until": None, "last_error": error}
    if ids:
        session.execute(
            update(OutboxRow)
            .where(*ours)
            .values(untried)
            .execution_options(synchronize_session=False)
        )


def lock_publishing(session: Session) -> None:
    """One at a time claims events, or gives them back, to the end of its transaction. On SQLite
    writers do anyway."""
    if is_postgres(
        session
    ):  # in a statement of its own: the next one sees what the one before us has done
        session.execute(select(func.pg_advisory_xact_lock(_TURN)))


_WRITTEN = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,18})")


@dataclass(frozen=True)
class Bookmark:
    """How far somebody has read: all events of transactions before `since`, and up to `id` of those
    before `until`. SQLite has one writer at a time: there the id says it all."""

    since: int = 0
    until: int = 0
    id: int = 0

    def __str__(self) -> str:
        """As `Last-Event-ID` brings it back."""
        return f"{self.since}-{self.until}-{self.id}"

    @classmethod
    def read(cls, text: str) -> "Bookmark":
        """InvalidInputError: it is none of ours."""
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
    """The next ones of the run or of the fiche, each with the bookmark to go on from. Internal ones
    are left out.

    Nothing is shown before all transactions that began earlier have ended, whatever they write.
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
    settled = _settled(session)
    if after.until > settled:  # a bookmark of another cluster: the ids came along with the dump
        after = Bookmark(0, settled, after.id)
    begun = _written_within(after.since, after.until)
    found = _page(session, (*shown, *begun, OutboxRow.id > after.id), after, limit)
    if len(found) < limit and settled > after.until:
        opened = Bookmark(after.until, settled)
        fresh = _written_within(opened.since, opened.until)
        found += _page(session, (*shown, *fresh), opened, limit - len(found))
    return found


def newest_bookmark(session: Session) -> Bookmark:
    """From here on only what comes."""
    if is_postgres(session):
        settled = _settled(session)
        return Bookmark(settled, settled)
    return Bookmark(id=session.scalar(select(func.max(OutboxRow.id))) or 0)


def is_withheld(session: Session, correlation_id: str) -> bool:
    """An event of the run is written, but not shown yet: an older transaction has not ended."""
    if not is_postgres(session):
        return False
    late = (
        OutboxRow.transaction_id >= _settled(session),
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


def _settled(session: Session) -> int:
    """All transactions before this one have ended, and no new one will be before it."""
    oldest_running = func.pg_snapshot_xmin(func.pg_current_snapshot())
    return session.scalars(select(cast(cast(oldest_running, Text), BigInteger))).one()


def _next_transaction() -> ColumnElement[int]:
    """What the statement that asks sees of this cluster's transactions is all below it."""
    return cast(cast(func.pg_snapshot_xmax(func.pg_current_snapshot()), Text), BigInteger)


@dataclass(frozen=True)
class OutboxStatus:
    """`lag_seconds` is the age of the oldest event that waits, 0 when none does. `parked` wait for
    somebody's hand."""

    waiting: int
    parked: int
    lag_seconds: float


def outbox_status(session: Session) -> OutboxStatus:
    """One query over what is not published, and the database's clock."""
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
