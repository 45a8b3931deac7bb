"""What agents receive and report: jobs, orders, progress and results."""

import json
from collections.abc import Mapping
from enum import StrEnum
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
from automation_pipeline.org_jobs.models.organisations import Whole, matching
from automation_pipeline.org_jobs.models.payloads import DEEPEST, texts_in
from automation_pipeline.org_jobs.models.states import OrgJobsRunState

MOST_CLAIMED = 20
MOST_RESULT_BYTES = 64 * 1024
LONGEST_MESSAGE = 1000
LONGEST_REPORTED_ERROR = 2000
LONGEST_LOG_REF = 1000
LONGEST_VERSION = 100

_AGENT = "agent:"


def _result(document: Mapping[str, object]) -> Mapping[str, object]:
    if is_deeper(document, DEEPEST):
        raise ValueError(f"must not be nested more than {DEEPEST} deep")
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise ValueError("must not hold numbers that are not finite") from None
    if len(text.encode(errors="surrogatepass")) > MOST_RESULT_BYTES:
        raise ValueError(
            f"must have at most {MOST_RESULT_BYTES} bytes as JSON: keep the rest where logRef says"
        )
    for part, _ in texts_in(document):
        if fault := text_fault(part):
            raise ValueError(fault)
    return document


ErrorCode = Annotated[
    str,
    matching(
        r"[A-Z_]{1,40}",
        "must be made of capital letters and underscores, 40 of them at most, such as DISK_FULL",
    ),
]


class AgentStatus(StrEnum):
    """What an agent says in the end."""

    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Greeting(JsonModel):
    agent_version: str | None = Field(default=None, max_length=LONGEST_VERSION, examples=["1.4.0"])


class ClaimInput(JsonModel):
    most: Annotated[Whole, Field(ge=1, le=MOST_CLAIMED)] = Field(
        default=1, description="So many jobs, at most."
    )


class _Report(JsonModel):
    """Both as they were claimed: they say which attempt is meant, and that it is the caller's."""

    attempt_no: Annotated[Whole, Field(ge=1, le=2**31 - 1)]
    lease_token: Annotated[Whole, Field(ge=1, le=LARGEST_ID)]


class ProgressReport(_Report):
    percent: Annotated[float, Field(strict=True, ge=0, le=100, allow_inf_nan=False)] | None = None
    message: str | None = Field(default=None, max_length=LONGEST_MESSAGE)


class ResultReport(_Report):
    status: AgentStatus
    result: Annotated[Mapping[str, object], AfterValidator(_result)] | None = Field(
        default=None, description="What came of it: up to 64 kB of JSON."
    )
    error_code: ErrorCode | None = Field(
        default=None,
        description="Of one that failed. After VALIDATION, NOT_FOUND and UNSUPPORTED it is not tried again.",
        examples=["DISK_FULL"],
    )
    error: str | None = Field(
        default=None, max_length=LONGEST_REPORTED_ERROR, description="What went wrong, for people."
    )
    log_ref: str | None = Field(
        default=None, max_length=LONGEST_LOG_REF, description="Where its log is."
    )


class AgentJob(JsonModel):
    """`status` is pending until its first report. `payload` names secrets, and holds none."""

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
    """What an agent is told when it reports: whether to stop, until when to report again, and when
    to be done."""

    cancel_requested: bool
    lease_expires_at: Instant
    deadline_at: Instant | None


def agent_name(host_name: str) -> str:
    """Who acts, in logs."""
    return f"{_AGENT}{host_name}"


def is_agent(actor: str) -> bool:
    return actor.startswith(_AGENT)


def read_result(given: Mapping[str, object]) -> ResultReport:
    """InvalidInputError names every field at fault."""
    complaint = "Invalid result"
    report = parse(ResultReport, given, complaint)
    if report.error_code is not None and report.status is not AgentStatus.FAILED:
        raise InvalidInputError(complaint, (("errorCode", "is for a result that says failed"),))
    if report.error and report.status is AgentStatus.SUCCESS:
        raise InvalidInputError(complaint, (("error", "is not for a result that says success"),))
    return report
