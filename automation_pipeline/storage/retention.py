"""What is kept for some days and then deleted in small batches; and which rows of storage these
are."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy import ColumnElement, delete, func, inspect, select
from sqlalchemy.orm import Session

from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.database import Database, DatabaseNotReadyError
from automation_pipeline.storage.heartbeats import StepHeartbeatRow
from automation_pipeline.storage.idempotency import IdempotencyKeyRow
from automation_pipeline.storage.outbox import NEVER, OutboxRow
from automation_pipeline.storage.rate_limits import RateLimitRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import among
from automation_pipeline.storage.types import Table
from automation_pipeline.storage.workflow_logs import WorkflowLogRow

BATCH = 1000


@dataclass(frozen=True)
class PurgePass:
    """One look at what is old: at most `limit` rows of a kind go. A dry one only counts, however
    many there are."""

    now: datetime
    limit: int = BATCH
    is_dry: bool = False

    def before(self, keep_days: int) -> datetime:
        return self.now - timedelta(days=keep_days)


@dataclass(frozen=True)
class Kind:
    """Rows that may go when they are old: those of which `are_old` holds, told the instant before
    which all is old. Whatever refers to them goes with them."""

    name: str
    table: type[Table]
    are_old: Callable[[datetime], Sequence[ColumnElement[bool]]]

    @property
    def key(self) -> ColumnElement[int]:
        """Or of texts: it is only compared with itself."""
        return cast("ColumnElement[int]", inspect(self.table).primary_key[0])

    def chosen(self, before: datetime) -> tuple[ColumnElement[bool], ...]:
        """Not the newest row: SQLite would give its number out again, and a number names its thing
        for good."""
        newest = select(func.max(self.key)).scalar_subquery()
        numbered = [self.key < newest] if self.key.type.python_type is int else []
        return *self.are_old(before), *numbered


# With the days that it is kept; 0: for ever.
Kept = tuple[Kind, int]


def purge_expired(kept: Iterable[Kept], look: PurgePass, *, database: Database) -> dict[str, int]:
    """How many of each kind went, or would."""
    return {
        kind.name: _purge_kind(kind, keep_days, look, database) if keep_days else 0
        for kind, keep_days in kept
    }


def _purge_kind(kind: Kind, keep_days: int, look: PurgePass, database: Database) -> int:
    before = look.before(keep_days)
    try:
        # Looked for without a lock: on SQLite all writers would stand behind a long search.
        with database.reading() as session:
            if look.is_dry:
                return _count(session, kind, before)
            found = _oldest(session, kind, before, look.limit)
        if not found:
            return 0
        with database.transaction() as session:
            return _delete(session, kind, before, found)
    except DatabaseNotReadyError:  # its table comes with the upgrade that is under way
        return 0


def _count(session: Session, kind: Kind, before: datetime) -> int:
    return session.scalar(select(func.count(kind.key)).where(*kind.chosen(before))) or 0


def _oldest(session: Session, kind: Kind, before: datetime, limit: int) -> Sequence[int]:
    return session.scalars(
        select(kind.key).where(*kind.chosen(before)).order_by(kind.key).limit(limit)
    ).all()


def _delete(session: Session, kind: Kind, before: datetime, found: Sequence[int]) -> int:
    """Those of them that are still old and that nobody holds."""
    old = kind.are_old(before)
    query = select(kind.key).where(among(session, kind.key, found), *old).order_by(kind.key)
    free = session.scalars(query.with_for_update(of=kind.table, skip_locked=True)).all()
    if free:
        gone = delete(kind.table).where(among(session, kind.key, free), *old)
        session.execute(gone.execution_options(synchronize_session=False))
    return len(free)


# Whether a room still waits for what becomes of a request: a condition on rows of RunRequestRow.
IsAwaited = Callable[[], ColumnElement[bool]]


@dataclass(frozen=True, kw_only=True)
class RetentionDays:
    """For how long each is kept; 0: for ever."""

    outbox: int
    parked: int
    requests: int
    keys: int
    leases: int
    logs: int


# Only what has left, or what nobody will try again: what waits to leave stays however old it is.
PUBLISHED_EVENTS = Kind(
    "events_outbox", OutboxRow, lambda before: (OutboxRow.published_at <= before,)
)
PARKED_EVENTS = Kind(
    "events_outbox, parked",
    OutboxRow,
    lambda before: (
        OutboxRow.published_at.is_(None),
        OutboxRow.available_at == NEVER,
        OutboxRow.claimed_until.is_(None),
        OutboxRow.occurred_at <= before,
    ),
)
# They are repeated for a week, which `claim_key` looks at itself.
IDEMPOTENCY_KEYS = Kind(
    "idempotency_keys", IdempotencyKeyRow, lambda before: (IdempotencyKeyRow.created_at <= before,)
)
# Tokens follow the clock: those of a lease that was forgotten are lower than any new one.
RELEASED_LEASES = Kind("leases", LeaseRow, lambda before: (LeaseRow.expires_at <= before,))
# Paid long ago is the same as never asked for.
PAID_RATE_LIMITS = Kind(
    "rate_limits", RateLimitRow, lambda before: (RateLimitRow.paid_until <= before.timestamp(),)
)
# What a lost worker left behind: its run ended, or was taken up again, within minutes.
SILENT_STEPS = Kind(
    "step_beats", StepHeartbeatRow, lambda before: (StepHeartbeatRow.beat_at <= before,)
)
WORKFLOW_LOGS = Kind(
    "workflow_logs", WorkflowLogRow, lambda before: (WorkflowLogRow.created_at <= before,)
)


def settled_requests(awaited: Sequence[IsAwaited]) -> Kind:
    """A key does not come back to life: each names a row that is numbered once, an instant, a day
    that is over, or something at random, so nobody files it again; and Dagster is only offered what
    waits."""

    def are_old(before: datetime) -> Sequence[ColumnElement[bool]]:
        is_over = RunRequestRow.state.in_(("taken", "refused")), RunRequestRow.created_at <= before
        return *is_over, *(~is_awaited() for is_awaited in awaited)

    return Kind("run_requests", RunRequestRow, are_old)


def purge_storage(
    days: RetentionDays, look: PurgePass, *, database: Database, awaited: Sequence[IsAwaited] = ()
) -> dict[str, int]:
    """How many of each went, or would."""
    kept = (
        (PUBLISHED_EVENTS, days.outbox),
        (PARKED_EVENTS, days.parked),
        (settled_requests(awaited), days.requests),
        (IDEMPOTENCY_KEYS, days.keys),
        (RELEASED_LEASES, days.leases),
        (PAID_RATE_LIMITS, days.leases),
        (SILENT_STEPS, days.leases),
        (WORKFLOW_LOGS, days.logs),
    )
    return purge_expired(kept, look, database=database)
