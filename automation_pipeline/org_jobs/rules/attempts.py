"""How unattended runs and agents' reports end attempts, and when a waiting run expires."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from automation_pipeline.org_jobs.models.agents import AgentStatus, ResultReport
from automation_pipeline.org_jobs.models.jobs import (
    FAILED,
    AttemptEnd,
    Performer,
    attempt_cancelled,
    attempt_expired,
    attempt_stale,
    attempt_too_long,
)
from automation_pipeline.org_jobs.models.states import OrgJobsRunState

WAITS = timedelta(hours=24)
# Within that time a window opens again, whenever in the last one the attempt was made.
_NEXT_OPENING = timedelta(hours=24)


def expires_at(begins_at: datetime, *, has_window: bool, waits: timedelta = WAITS) -> datetime:
    """Counted from when it may begin. What missed its window may begin in the next one, and in no
    later one for ever: so a window adds to it once."""
    return begins_at + waits + (_NEXT_OPENING if has_window else timedelta(0))


@dataclass(frozen=True, kw_only=True)
class UnattendedRun:
    """`silent_seconds` is how long nothing was heard of who has it; None: as long as may be.
    `is_followed`: nobody need speak for it, and whoever looks after it ends it."""

    status: OrgJobsRunState
    performer: Performer
    is_cancel_wanted: bool = False
    cancel_reason: str | None = None
    silent_seconds: float | None = None
    is_held: bool = False
    is_followed: bool = False
    started_at: datetime | None = None
    deadline_at: datetime | None = None
    expires_at: datetime | None = None


def end_of_unattended(run: UnattendedRun, now: datetime) -> AttemptEnd | None:
    """None: it is left as it is."""
    if run.is_followed:
        return None
    if run.status is OrgJobsRunState.PENDING:
        return _never_begun_end(run, now)
    end = _late_end(run, now)
    return attempt_cancelled(run.cancel_reason) if end is not None and run.is_cancel_wanted else end


def _never_begun_end(run: UnattendedRun, now: datetime) -> AttemptEnd | None:
    if run.is_held or run.expires_at is None or run.expires_at > now:
        return None
    return attempt_expired(run.expires_at, run.performer)


def _late_end(run: UnattendedRun, now: datetime) -> AttemptEnd | None:
    if run.status is not OrgJobsRunState.RUNNING:
        return None
    if run.deadline_at is not None and run.deadline_at <= now:
        return attempt_too_long(
            (run.deadline_at - (run.started_at or run.deadline_at)).total_seconds()
        )
    return None if run.silent_seconds is None else attempt_stale(run.silent_seconds)


# Of what an agent stopped by itself.
UNWANTED_CANCEL = "CANCELLED"


class ReportVerdict(Enum):
    """On a result for an attempt that is not the agent's any more. SAME: it said so before. OTHER:
    it said otherwise before. LATE: the attempt was given up. UNCLAIMED: it is free again, or never
    was its. STRANGE: somebody else's."""

    SAME = auto()
    OTHER = auto()
    LATE = auto()
    UNCLAIMED = auto()
    STRANGE = auto()


@dataclass(frozen=True)
class PastAttempt:
    """An attempt that has ended, by its agent's own word or by somebody else's."""

    status: OrgJobsRunState
    error_code: str | None
    was_reported: bool


def verdict_on(
    report: ResultReport, attempt_no: int, lease_token: int, past: PastAttempt | None
) -> ReportVerdict:
    """`attempt_no` and `lease_token` are the run's. Tokens rise: an earlier attempt was held under
    an earlier one."""
    is_newest = report.attempt_no == attempt_no
    if report.lease_token > lease_token or (is_newest and report.lease_token != lease_token):
        return ReportVerdict.STRANGE
    if past is None:
        return ReportVerdict.UNCLAIMED
    if not past.was_reported:
        return ReportVerdict.LATE
    return ReportVerdict.SAME if _is_what_was_said(past, report.status) else ReportVerdict.OTHER


def attempt_end(report: ResultReport, *, is_cancel_wanted: bool) -> AttemptEnd:
    """Only what was to be cancelled is; what an agent stops by itself has failed."""
    status, code, why = OrgJobsRunState(report.status), None, None
    match report.status:
        case AgentStatus.SUCCESS:
            pass
        case AgentStatus.CANCELLED if is_cancel_wanted:
            why = "Its agent has stopped it, as was wanted."
        case AgentStatus.CANCELLED:
            status, code, why = (
                OrgJobsRunState.FAILED,
                UNWANTED_CANCEL,
                "Its agent stopped it, though nobody wanted that.",
            )
        case AgentStatus.FAILED:
            code, why = report.error_code or FAILED, "Its agent does not say why it failed."
    return AttemptEnd(
        status=status,
        error_code=code,
        error=report.error or why,
        result=report.result,
        log_ref=report.log_ref,
    )


def refusal_message(
    verdict: ReportVerdict, run_id: int, attempt_no: int, past: PastAttempt | None
) -> str:
    """Why it is not taken, and what the agent has to do."""
    ended = "" if past is None else f" ({past.error_code or past.status})"
    why = {
        ReportVerdict.SAME: "has ended so",
        ReportVerdict.OTHER: f"was reported to have ended otherwise{ended}",
        ReportVerdict.LATE: f"was given up{ended}",
        ReportVerdict.UNCLAIMED: "is not claimed any more, or was never begun",
        ReportVerdict.STRANGE: "is held under another lease token",
    }[verdict]
    return _stop(run_id, attempt_no, why)


def lost_lease_message(run_id: int, attempt_no: int) -> str:
    return _stop(run_id, attempt_no, "is not yours any more")


def _stop(run_id: int, attempt_no: int, why: str) -> str:
    return f"Attempt {attempt_no} of job run {run_id} {why}: stop working on it, and claim again."


def _is_what_was_said(past: PastAttempt, said: AgentStatus) -> bool:
    if said is AgentStatus.CANCELLED and past.error_code == UNWANTED_CANCEL:
        return past.status is OrgJobsRunState.FAILED
    return past.status.value == said.value
