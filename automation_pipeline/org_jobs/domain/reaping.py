"""What becomes of runs that nobody speaks for any more."""

from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.org_jobs.domain.endings import AttemptEnd, cancelled, expired, stale, too_long
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.states import RunState


@dataclass(frozen=True, kw_only=True)
class Standing:
    """`silent_seconds` is how long nothing was heard of who has it; None: as long as may be. `is_followed`: nobody
    need speak for it, and whoever looks after it ends it."""

    status: RunState
    performer: Performer
    is_cancel_wanted: bool = False
    cancel_reason: str | None = None
    silent_seconds: float | None = None
    is_held: bool = False
    is_followed: bool = False
    started_at: datetime | None = None
    deadline_at: datetime | None = None
    expires_at: datetime | None = None


def reaped(run: Standing, now: datetime) -> AttemptEnd | None:
    """None: it is left as it is."""
    if run.is_followed:
        return None
    if run.status is RunState.PENDING:
        return _never_begun_end(run, now)
    end = _late_end(run, now)
    return cancelled(run.cancel_reason) if end is not None and run.is_cancel_wanted else end


def _never_begun_end(run: Standing, now: datetime) -> AttemptEnd | None:
    if run.is_held or run.expires_at is None or run.expires_at > now:
        return None
    return expired(run.expires_at, run.performer)


def _late_end(run: Standing, now: datetime) -> AttemptEnd | None:
    if run.status is not RunState.RUNNING:
        return None
    if run.deadline_at is not None and run.deadline_at <= now:
        return too_long((run.deadline_at - (run.started_at or run.deadline_at)).total_seconds())
    return None if run.silent_seconds is None else stale(run.silent_seconds)
