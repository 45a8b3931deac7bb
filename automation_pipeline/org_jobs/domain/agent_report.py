"""What a result means that an agent reports: the end of its attempt, a repetition, or words that come too late."""

from dataclasses import dataclass
from enum import Enum, auto

from automation_pipeline.org_jobs.domain.agent_job import AgentStatus, ResultReport
from automation_pipeline.org_jobs.domain.endings import AttemptEnd
from automation_pipeline.org_jobs.domain.retry_policy import FAILED
from automation_pipeline.org_jobs.domain.states import RunState

# Of what an agent stopped by itself.
UNWANTED_CANCEL = "CANCELLED"


class Verdict(Enum):
    """On a result for an attempt that is not the agent's any more. SAME: it said so before. OTHER: it said otherwise
    before. LATE: the attempt was given up. UNCLAIMED: it is free again, or never was its. STRANGE: somebody else's."""

    SAME = auto()
    OTHER = auto()
    LATE = auto()
    UNCLAIMED = auto()
    STRANGE = auto()


@dataclass(frozen=True)
class PastAttempt:
    """An attempt that has ended, by its agent's own word or by somebody else's."""

    status: RunState
    error_code: str | None
    was_reported: bool


def verdict_on(report: ResultReport, attempt_no: int, lease_token: int, past: PastAttempt | None) -> Verdict:
    """`attempt_no` and `lease_token` are the run's. Tokens rise: an earlier attempt was held under an earlier one."""
    is_newest = report.attempt_no == attempt_no
    if report.lease_token > lease_token or (is_newest and report.lease_token != lease_token):
        return Verdict.STRANGE
    if past is None:
        return Verdict.UNCLAIMED
    if not past.was_reported:
        return Verdict.LATE
    return Verdict.SAME if _is_what_was_said(past, report.status) else Verdict.OTHER


def attempt_end(report: ResultReport, *, is_cancel_wanted: bool) -> AttemptEnd:
    """Only what was to be cancelled is; what an agent stops by itself has failed."""
    status, code, why = RunState(report.status), None, None
    match report.status:
        case AgentStatus.SUCCESS:
            pass
        case AgentStatus.CANCELLED if is_cancel_wanted:
            why = "Its agent has stopped it, as was wanted."
        case AgentStatus.CANCELLED:
            status, code, why = RunState.FAILED, UNWANTED_CANCEL, "Its agent stopped it, though nobody wanted that."
        case AgentStatus.FAILED:
            code, why = report.error_code or FAILED, "Its agent does not say why it failed."
    return AttemptEnd(
        status=status, error_code=code, error=report.error or why, result=report.result, log_ref=report.log_ref
    )


def refusal_words(verdict: Verdict, run_id: int, attempt_no: int, past: PastAttempt | None) -> str:
    """Why it is not taken, and what the agent has to do."""
    ended = "" if past is None else f" ({past.error_code or past.status})"
    why = {
        Verdict.SAME: "has ended so",
        Verdict.OTHER: f"was reported to have ended otherwise{ended}",
        Verdict.LATE: f"was given up{ended}",
        Verdict.UNCLAIMED: "is not claimed any more, or was never begun",
        Verdict.STRANGE: "is held under another lease token",
    }[verdict]
    return _stop(run_id, attempt_no, why)


def no_longer_yours(run_id: int, attempt_no: int) -> str:
    return _stop(run_id, attempt_no, "is not yours any more")


def _stop(run_id: int, attempt_no: int, why: str) -> str:
    return f"Attempt {attempt_no} of job run {run_id} {why}: stop working on it, and claim again."


def _is_what_was_said(past: PastAttempt, said: AgentStatus) -> bool:
    if said is AgentStatus.CANCELLED and past.error_code == UNWANTED_CANCEL:
        return past.status is RunState.FAILED
    return past.status.value == said.value
