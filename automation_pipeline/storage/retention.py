"""Deletion of old rows in small batches, and the kinds of rows of this package."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy import ColumnElement, delete, func, inspect, select

from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.database import Database, DatabaseNotReadyError
from automation_pipeline.storage.history import WorkflowLogRow
from automation_pipeline.storage.idempotency import IdempotencyKeyRow
from automation_pipeline.storage.monitoring import StepHeartbeatRow
from automation_pipeline.storage.outbox import NEVER, OutboxRow
from automation_pipeline.storage.rate_limits import RateLimitRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import among
from automation_pipeline.storage.types import Table

BATCH = 1000


@dataclass(frozen=True)
class PurgePass:
    """Deletes at most `limit` old rows of a kind. A dry pass only counts them, however many there
    are."""

    now: datetime
    limit: int = BATCH
    is_dry: bool = False

    def before(self, keep_days: int) -> datetime:
        return self.now - timedelta(days=keep_days)


@dataclass(frozen=True)
class Kind:
    """Rows that may be deleted when they are old. `are_old` gives the conditions for an instant:
    what is older than it has expired. Rows that refer to them are deleted with them."""

    name: str
    table: type[Table]
    are_old: Callable[[datetime], Sequence[ColumnElement[bool]]]

    @property
    def key(self) -> ColumnElement[int]:
        """Some keys are texts: it is only compared with itself."""
        return cast("ColumnElement[int]", inspect(self.table).primary_key[0])

    def chosen(self, before: datetime) -> tuple[ColumnElement[bool], ...]:
        """Without the newest row: SQLite would use its id again, and ids are part of keys."""
        newest = select(func.max(self.key)).scalar_subquery()
        numbered = [self.key < newest] if self.key.type.python_type is int else []
        return *self.are_old(before), *numbered


def purge_expired(
    kept: Iterable[tuple[Kind, int]], look: PurgePass, *, database: Database
) -> dict[str, int]:
    """How many rows of each kind were deleted, or would be. Each kind comes with its days; 0 keeps
    it for ever."""
    return {
        kind.name: _purge(kind, look.before(days), look, database) if days else 0
        for kind, days in kept
    }


def _purge(kind: Kind, before: datetime, look: PurgePass, database: Database) -> int:
    chosen, old = kind.chosen(before), kind.are_old(before)
    try:
        # Searched without a lock: on SQLite all writers would wait for a long search.
        with database.reading() as session:
            if look.is_dry:
                return session.scalar(select(func.count(kind.key)).where(*chosen)) or 0
            oldest = select(kind.key).where(*chosen).order_by(kind.key).limit(look.limit)
            found = session.scalars(oldest).all()
        if not found:
            return 0
        with database.transaction() as session:
            # Those that are still old and that no other transaction holds.
            query = select(kind.key).where(among(session, kind.key, found), *old).order_by(kind.key)
            free = session.scalars(query.with_for_update(of=kind.table, skip_locked=True)).all()
            if free:
                expired = delete(kind.table).where(among(session, kind.key, free), *old)
                session.execute(expired.execution_options(synchronize_session=False))
            return len(free)
    except DatabaseNotReadyError:  # its table comes with the upgrade that is under way
        return 0


# Published or parked events only: an event that waits stays however old it is.
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
# `claim_key` repeats an answer for a week at most.
IDEMPOTENCY_KEYS = Kind(
    "idempotency_keys", IdempotencyKeyRow, lambda before: (IdempotencyKeyRow.created_at <= before,)
)
# Tokens follow the clock: a new lease of a deleted key has a higher token.
RELEASED_LEASES = Kind("leases", LeaseRow, lambda before: (LeaseRow.expires_at <= before,))
# A limit that was paid long ago allows the same as a missing one.
PAID_RATE_LIMITS = Kind(
    "rate_limits", RateLimitRow, lambda before: (RateLimitRow.paid_until <= before.timestamp(),)
)
# Rows of lost workers, whose runs ended or were requested again within minutes.
SILENT_STEPS = Kind(
    "step_beats", StepHeartbeatRow, lambda before: (StepHeartbeatRow.beat_at <= before,)
)
WORKFLOW_LOGS = Kind(
    "workflow_logs", WorkflowLogRow, lambda before: (WorkflowLogRow.created_at <= before,)
)


def settled_requests(is_awaited: Callable[[], ColumnElement[bool]]) -> Kind:
    """Requests that are taken or refused, and whose outcome nothing `is_awaited` for. Their keys
    are never filed again: each names a row, an instant, a past day, or a random number."""

    def are_old(before: datetime) -> Sequence[ColumnElement[bool]]:
        is_settled = RunRequestRow.state.in_(("taken", "refused"))
        return is_settled, RunRequestRow.created_at <= before, ~is_awaited()

    return Kind("run_requests", RunRequestRow, are_old)
