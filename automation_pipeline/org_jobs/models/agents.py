"""Messages to and from agents: jobs, orders, progress and results."""

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
    agent_version: str | None = Field(default=None, max_length=LONGEST_VERSION, examples=["1.4.0"])


class ClaimInput(JsonModel):
    most: Annotated[Whole, Field(ge=1, le=MOST_CLAIMED)] = Field(
        default=1, description="The maximum number of jobs."
    )


class _Report(JsonModel):
    """The attempt and its lease token from the claim, which identify the attempt and its holder."""

    attempt_no: Annotated[Whole, Field(ge=1, le=2**31 - 1)]
    lease_token: Annotated[Whole, Field(ge=1, le=LARGEST_ID)]


class ProgressReport(_Report):
    percent: Annotated[float, Field(strict=True, ge=0, le=100, allow_inf_nan=False)] | None = None
    message: str | None = Field(default=None, max_length=LONGEST_MESSAGE)


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
        max_length=LONGEST_REPORTED_ERROR,
        description="The error message, for people.",
    )
    log_ref: str | None = Field(
        default=None, max_length=LONGEST_LOG_REF, description="The location of its log."
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
    """The name of an agent in logs."""
    return f"{_AGENT}{host_name}"


def is_agent(actor: str) -> bool:
    return actor.startswith(_AGENT)


def read_result(given: Mapping[str, object]) -> ResultReport:
    """InvalidInputError names every field at fault."""
    complaint = "Invalid result"
    report = parse(ResultReport, given, complaint)
    if report.error_code is not None and report.status is not AgentStatus.FAILED:
        raise InvalidInputError(complaint, (("errorCode", "requires the result failed"),))
    if report.error and report.status is AgentStatus.SUCCESS:
        raise InvalidInputError(complaint, (("error", "is not allowed with the result success"),))
    return report
