"""How an attempt at a job ends, and what that means for its run."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from random import Random

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    sentence_of,
)
from automation_pipeline.core.masking import masked_text
from automation_pipeline.org_jobs.models.jobs import (
    EXPIRED,
    FAILED,
    STALE,
    TIME_LIMIT,
    UNSUPPORTED,
    Performer,
    RetryPolicy,
    StartWindow,
    is_retryable,
    retry_at,
)
from automation_pipeline.org_jobs.models.states import JOB_RUN, OrgJobsRunState

_WHO_BEGINS = {
    Performer.AGENT: "is an agent at work for its server?",
    Performer.SERVICE: "does Dagster start workers, and what do the logs of its job's say? Ask `automation doctor`.",
}


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """How an attempt ended. `error_code` and `error` are of those that failed."""

    status: OrgJobsRunState
    error_code: str | None = None
    error: str | None = None
    result: Mapping[str, object] | None = None
    log_ref: str | None = None


@dataclass(frozen=True)
class RunEnd:
    """What becomes of the run: `retry_at` is set where it waits to be tried again."""

    state: OrgJobsRunState
    retry_at: datetime | None = None


def run_end(  # noqa: PLR0913  what the decision needs, by name
    end: AttemptEnd,
    *,
    frm: OrgJobsRunState,
    attempt_no: int,
    policy: RetryPolicy,
    window: StartWindow | None,
    is_cancel_wanted: bool,
    now: datetime,
    random: Random,
) -> RunEnd:
    """IllegalMoveError for an end that its state does not allow. Whoever wanted it cancelled wants
    no other try."""
    JOB_RUN.move(frm, end.status)
    if (
        end.status is not OrgJobsRunState.FAILED
        or is_cancel_wanted
        or not is_retryable(end.error_code)
    ):
        return RunEnd(end.status)
    again = retry_at(policy, attempt_no, now, window, random)
    return RunEnd(end.status) if again is None else RunEnd(OrgJobsRunState.PENDING, again)


def attempt_stale(seconds: float) -> AttemptEnd:
    words = f"Nothing was heard of it for {seconds:.0f} s: whoever worked on it is taken for dead."
    return AttemptEnd(status=OrgJobsRunState.FAILED, error_code=STALE, error=words)


def attempt_too_long(seconds: float) -> AttemptEnd:
    words = f"It was not done after {seconds:.0f} s, the most that its type may take."
    return AttemptEnd(status=OrgJobsRunState.FAILED, error_code=TIME_LIMIT, error=words)


def attempt_expired(until: datetime, performer: Performer) -> AttemptEnd:
    words = f"Nobody began it by {iso(until)}: {_WHO_BEGINS[performer]}"
    return AttemptEnd(status=OrgJobsRunState.FAILED, error_code=EXPIRED, error=words)


def attempt_failed(error: str, error_code: str = FAILED) -> AttemptEnd:
    return AttemptEnd(status=OrgJobsRunState.FAILED, error_code=error_code, error=error)


def attempt_cancelled(reason: str | None = None) -> AttemptEnd:
    return AttemptEnd(status=OrgJobsRunState.CANCELLED, error=reason)


def attempt_succeeded(
    result: Mapping[str, object] | None = None, log_ref: str | None = None
) -> AttemptEnd:
    return AttemptEnd(status=OrgJobsRunState.SUCCESS, result=result, log_ref=log_ref)


VALIDATION, NOT_FOUND, CONFLICT = "VALIDATION", "NOT_FOUND", "CONFLICT"

# The first that it is an instance of. What stands in the way (CONFLICT) may be gone by the next
# attempt.
_CODES: tuple[tuple[type[AutomationError], str], ...] = (
    (NotFoundError, NOT_FOUND),
    (ConflictError, CONFLICT),
    (InvalidInputError, VALIDATION),
    (PermanentError, UNSUPPORTED),
)


def end_of_error(error: AutomationError) -> AttemptEnd:
    return attempt_failed(masked_text(sentence_of(error)), code_of(error))


def code_of(error: AutomationError) -> str:
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
