"""Messages to and from agents, and how their reports end attempts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Annotated

from pydantic import AfterValidator, Field

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import (
    LARGEST_ID,
    Id,
    Instant,
    JsonModel,
    is_deeper,
    parse,
    text_fault,
)
from automation_pipeline.org_jobs.models.jobs import FAILED, AttemptEnd, OrgJobsRunState
from automation_pipeline.org_jobs.models.organisations import Whole, matching
from automation_pipeline.org_jobs.models.payloads import DEEPEST, texts_in

MOST_RESULT_BYTES = 64 * 1024

_AGENT = "agent:"


def _result(document: Mapping[str, object]) -> Mapping[str, object]:
    if is_deeper(document, DEEPEST):
        raise ValueError(f"must not be nested more than {DEEPEST} deep")
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise ValueError("must not contain numbers that are not finite") from None
    if len(text.encode(errors="surrogatepass")) > MOST_RESULT_BYTES:
        raise ValueError(
            f"must have at most {MOST_RESULT_BYTES} bytes as JSON: store the rest at logRef"
        )
    for part, _ in texts_in(document):
        if fault := text_fault(part):
            raise ValueError(fault)
    return document


ErrorCode = Annotated[
    str,
    matching(
        r"[A-Z_]{1,40}",
        "must consist of at most 40 capital letters and underscores, such as DISK_FULL",
    ),
]


class AgentStatus(StrEnum):
    """The result that an agent reports."""

    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Greeting(JsonModel):
    agent_version: str | None = Field(default=None, max_length=100, examples=["1.4.0"])


class ClaimInput(JsonModel):
    most: Annotated[Whole, Field(ge=1, le=20)] = Field(
        default=1, description="The maximum number of jobs."
    )


class _Report(JsonModel):
    """The attempt and its lease token from the claim, which identify the attempt and its holder."""

    attempt_no: Annotated[Whole, Field(ge=1, le=2**31 - 1)]
    lease_token: Annotated[Whole, Field(ge=1, le=LARGEST_ID)]


class ProgressReport(_Report):
    percent: Annotated[float, Field(strict=True, ge=0, le=100, allow_inf_nan=False)] | None = None
    message: str | None = Field(default=None, max_length=1000)


class ResultReport(_Report):
    status: AgentStatus
    result: Annotated[Mapping[str, object], AfterValidator(_result)] | None = Field(
        default=None, description="The result: up to 64 kB of JSON."
    )
    error_code: ErrorCode | None = Field(
        default=None,
        description="The error code of a failed attempt. VALIDATION, NOT_FOUND and UNSUPPORTED are not retried.",
        examples=["DISK_FULL"],
    )
    error: str | None = Field(
        default=None,
        max_length=2000,
        description="The error message, for people.",
    )
    log_ref: str | None = Field(
        default=None, max_length=1000, description="The location of its log."
    )


class AgentJob(JsonModel):
    """`status` is pending until its first report. `payload` contains references to secrets, and no secrets."""

    run_id: Id
    job_id: Id
    status: OrgJobsRunState
    attempt_no: int
    max_attempts: int
    lease_token: int
    lease_expires_at: Instant
    deadline_at: Instant | None
    type: str
    payload: Mapping[str, object]
    server_instance_id: Id | None
    server_name: str | None
    limit_seconds: int
    scheduled_for: Instant | None


class Orders(JsonModel):
    """The response to an agent's report: whether to stop, when to report again at the latest, and
    the deadline of the attempt."""

    cancel_requested: bool
    lease_expires_at: Instant
    deadline_at: Instant | None


def agent_name(host_name: str) -> str:
    return f"{_AGENT}{host_name}"


def is_agent(actor: str) -> bool:
    return actor.startswith(_AGENT)


def read_result(given: Mapping[str, object]) -> ResultReport:
    """Raises InvalidInputError, which names every field at fault."""
    complaint = "Invalid result"
    report = parse(ResultReport, given, complaint)
    if report.error_code is not None and report.status is not AgentStatus.FAILED:
        raise InvalidInputError(complaint, (("errorCode", "requires the result failed"),))
    if report.error and report.status is AgentStatus.SUCCESS:
        raise InvalidInputError(complaint, (("error", "is not allowed with the result success"),))
    return report


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
