"""How agents' reports end attempts, and which reports are refused."""

from dataclasses import dataclass
from enum import Enum, auto

from automation_pipeline.org_jobs.models.agents import AgentStatus, ResultReport
from automation_pipeline.org_jobs.models.jobs import FAILED, AttemptEnd
from automation_pipeline.org_jobs.models.states import OrgJobsRunState

# The error code of an attempt that its agent stopped without a request.
UNWANTED_CANCEL = "CANCELLED"


class ReportVerdict(Enum):
    """The verdict on a result for an attempt that the agent no longer holds. SAME: it reported the
    same result before. OTHER: it reported another result before. LATE: the system ended the
    attempt. UNCLAIMED: the attempt is free again, or was never the agent's. STRANGE: another agent
    holds it."""

    SAME = auto()
    OTHER = auto()
    LATE = auto()
    UNCLAIMED = auto()
    STRANGE = auto()


@dataclass(frozen=True)
class PastAttempt:
    """An attempt that has ended, by its agent's report or otherwise."""

    status: OrgJobsRunState
    error_code: str | None
    was_reported: bool


def verdict_on(
    report: ResultReport, attempt_no: int, lease_token: int, past: PastAttempt | None
) -> ReportVerdict:
    """`attempt_no` and `lease_token` are the run's. Earlier attempts have lower tokens."""
    is_newest = report.attempt_no == attempt_no
    if report.lease_token > lease_token or (is_newest and report.lease_token != lease_token):
        return ReportVerdict.STRANGE
    if past is None:
        return ReportVerdict.UNCLAIMED
    if not past.was_reported:
        return ReportVerdict.LATE
    is_unwanted = past.error_code == UNWANTED_CANCEL and report.status is AgentStatus.CANCELLED
    reported = AgentStatus.FAILED if is_unwanted else report.status
    return ReportVerdict.SAME if past.status == reported else ReportVerdict.OTHER


def attempt_end(report: ResultReport, *, is_cancel_wanted: bool) -> AttemptEnd:
    """An attempt that an agent stopped without a request has failed."""
    status, code, why = OrgJobsRunState(report.status), None, None
    match report.status:
        case AgentStatus.SUCCESS:
            pass
        case AgentStatus.CANCELLED if is_cancel_wanted:
            why = "Its agent stopped it on request."
        case AgentStatus.CANCELLED:
            status, code, why = (
                OrgJobsRunState.FAILED,
                UNWANTED_CANCEL,
                "Its agent stopped it without a request.",
            )
        case AgentStatus.FAILED:
            code, why = report.error_code or FAILED, "Its agent gave no reason for the failure."
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
    """Why the report is refused, and what the agent must do."""
    ended = "" if past is None else f" ({past.error_code or past.status})"
    why = {
        ReportVerdict.SAME: "has already ended with this result",
        ReportVerdict.OTHER: f"has already ended with another result{ended}",
        ReportVerdict.LATE: f"was ended by the system{ended}",
        ReportVerdict.UNCLAIMED: "is no longer claimed, or never started",
        ReportVerdict.STRANGE: "is held under another lease token",
    }[verdict]
    return _stop(run_id, attempt_no, why)


def lost_lease_message(run_id: int, attempt_no: int) -> str:
    return _stop(run_id, attempt_no, "is no longer yours")


def _stop(run_id: int, attempt_no: int, why: str) -> str:
    return f"Attempt {attempt_no} of job run {run_id} {why}: stop working on it, and claim again."
