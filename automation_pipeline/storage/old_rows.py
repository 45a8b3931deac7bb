"""The ground's own rows that may go: events, requests, keys, leases, logs. Each room says what of its own may."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement

from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.idempotency import IdempotencyKeyRow
from automation_pipeline.storage.outbox import NEVER, OutboxRow
from automation_pipeline.storage.rate_limits import RateLimitRow
from automation_pipeline.storage.retention import Kind, Look, look_through
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.step_beats import StepBeatRow
from automation_pipeline.storage.workflow_logs import WorkflowLogRow

# Whether a room still waits for what becomes of a request: a condition on rows of RunRequestRow.
IsAwaited = Callable[[], ColumnElement[bool]]


@dataclass(frozen=True, kw_only=True)
class GroundDays:
    """For how long each is kept; 0: for ever."""

    outbox: int
    parked: int
    requests: int
    keys: int
    leases: int
    logs: int


# Only what has left, or what nobody will try again: what waits to leave stays however old it is.
PUBLISHED = Kind("events_outbox", OutboxRow, lambda before: (OutboxRow.published_at <= before,))
PARKED = Kind(
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
ANSWERED = Kind("idempotency_keys", IdempotencyKeyRow, lambda before: (IdempotencyKeyRow.created_at <= before,))
# Tokens follow the clock: those of a lease that was forgotten are lower than any new one.
RELEASED = Kind("leases", LeaseRow, lambda before: (LeaseRow.expires_at <= before,))
# Paid long ago is the same as never asked for.
PAID = Kind("rate_limits", RateLimitRow, lambda before: (RateLimitRow.paid_until <= before.timestamp(),))
# What a lost worker left behind: its run ended, or was taken up again, within minutes.
SILENT = Kind("step_beats", StepBeatRow, lambda before: (StepBeatRow.beat_at <= before,))
WRITTEN = Kind("workflow_logs", WorkflowLogRow, lambda before: (WorkflowLogRow.created_at <= before,))


def settled_requests(awaited: Sequence[IsAwaited]) -> Kind:
    """A key does not come back to life: each names a row that is numbered once, an instant, a day that is over, or
    something at random, so nobody files it again; and Dagster is only offered what waits."""

    def are_old(before: datetime) -> Sequence[ColumnElement[bool]]:
        is_over = RunRequestRow.state.in_(("taken", "refused")), RunRequestRow.created_at <= before
        return *is_over, *(~is_awaited() for is_awaited in awaited)

    return Kind("run_requests", RunRequestRow, are_old)


def look_through_ground(
    days: GroundDays, look: Look, *, database: Database, awaited: Sequence[IsAwaited] = ()
) -> dict[str, int]:
    """How many of each went, or would."""
    kept = (
        (PUBLISHED, days.outbox),
        (PARKED, days.parked),
        (settled_requests(awaited), days.requests),
        (ANSWERED, days.keys),
        (RELEASED, days.leases),
        (PAID, days.leases),
        (SILENT, days.leases),
        (WRITTEN, days.logs),
    )
    return look_through(kept, look, database=database)
