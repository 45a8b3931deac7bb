"""What the end of an attempt means: for its run, and for the schedule that it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from random import Random

from automation_pipeline.core.instants import iso
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.retry_policy import (
    EXPIRED,
    FAILED,
    STALE,
    TIME_LIMIT,
    RetryPolicy,
    StartWindow,
    is_retryable,
    retry_at,
)
from automation_pipeline.org_jobs.domain.states import JOB_RUN, RunState

_WHO_BEGINS = {
    Performer.AGENT: "is an agent at work for its server?",
    Performer.SERVICE: "does Dagster start workers, and what do the logs of its job's say? Ask `automation doctor`.",
}


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """How an attempt ended. `error_code` and `error` are of those that failed."""

    status: RunState
    error_code: str | None = None
    error: str | None = None
    result: Mapping[str, object] | None = None
    log_ref: str | None = None


@dataclass(frozen=True)
class RunEnd:
    """What becomes of the run: `retry_at` is set where it waits to be tried again."""

    state: RunState
    retry_at: datetime | None = None


def run_end(  # noqa: PLR0913  what the decision needs, by name
    end: AttemptEnd,
    *,
    frm: RunState,
    attempt_no: int,
    policy: RetryPolicy,
    window: StartWindow | None,
    is_cancel_wanted: bool,
    now: datetime,
    random: Random,
) -> RunEnd:
    """IllegalMoveError for an end that its state does not allow. Whoever wanted it cancelled wants no other try."""
    JOB_RUN.move(frm, end.status)
    if end.status is not RunState.FAILED or is_cancel_wanted or not is_retryable(end.error_code):
        return RunEnd(end.status)
    again = retry_at(policy, attempt_no, now, window, random)
    return RunEnd(end.status) if again is None else RunEnd(RunState.PENDING, again)


def stale(seconds: float) -> AttemptEnd:
    words = f"Nothing was heard of it for {seconds:.0f} s: whoever worked on it is taken for dead."
    return AttemptEnd(status=RunState.FAILED, error_code=STALE, error=words)


def too_long(seconds: float) -> AttemptEnd:
    words = f"It was not done after {seconds:.0f} s, the most that its type may take."
    return AttemptEnd(status=RunState.FAILED, error_code=TIME_LIMIT, error=words)


def expired(until: datetime, performer: Performer) -> AttemptEnd:
    words = f"Nobody began it by {iso(until)}: {_WHO_BEGINS[performer]}"
    return AttemptEnd(status=RunState.FAILED, error_code=EXPIRED, error=words)


def failed(error: str, error_code: str = FAILED) -> AttemptEnd:
    return AttemptEnd(status=RunState.FAILED, error_code=error_code, error=error)


def cancelled(reason: str | None = None) -> AttemptEnd:
    return AttemptEnd(status=RunState.CANCELLED, error=reason)


def succeeded(result: Mapping[str, object] | None = None, log_ref: str | None = None) -> AttemptEnd:
    return AttemptEnd(status=RunState.SUCCESS, result=result, log_ref=log_ref)
