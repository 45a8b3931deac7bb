"""A job of an organisation with its runs and their attempts, as they are stored and shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, PlainSerializer

from automation_pipeline.core.json_model import Id, Instant, JsonModel, is_deeper
from automation_pipeline.org_jobs.domain.field_rules import KnownId, Whole
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.retry_policy import BackoffType, RetryPolicy
from automation_pipeline.org_jobs.domain.schedule_fields import Payload
from automation_pipeline.org_jobs.domain.states import RunState

# Pydantic writes nothing that is nested more than some 250 deep.
_DEEPEST_SHOWN = 100


def _shown(document: Mapping[str, object]) -> Mapping[str, object]:
    """One that cannot be written does not take its whole list with it."""
    return {"note": "It is nested too deeply to be shown."} if is_deeper(document, _DEEPEST_SHOWN) else document


Document = Annotated[Mapping[str, object], PlainSerializer(_shown, when_used="json")]

# Of jobs that nobody says more about.
USUAL_RETRIES = RetryPolicy(max_retries=2, backoff_ms=2000, backoff_type=BackoffType.EXPONENTIAL)


class JobWish(JsonModel):
    """A job without a schedule, as people ask for it."""

    server_instance_id: KnownId | None = Field(
        default=None, description="The server that it is about: for types that agents do, and for no others."
    )
    type: str = Field(max_length=100, examples=["SAVE_BACKUP"])
    payload: Payload = Field(default_factory=dict[str, object], description="What its type needs.")
    priority: Annotated[Whole, Field(ge=1, le=9, description="1 is done first.")] = 5
    retry_policy: RetryPolicy | None = Field(
        default=None, description="Left out: two more attempts, after two and four seconds."
    )


class Attempt(JsonModel):
    """One that has ended. `late_report` is what an agent said after it was given up."""

    attempt_no: int
    owner: str | None
    host_id: Id | None
    status: RunState
    started_at: Instant | None
    finished_at: Instant
    error_code: str | None
    error: str | None
    result: Document | None
    log_ref: str | None
    retry_at: Instant | None
    late_report: Document | None


class OrgJobRun(JsonModel):
    """`next_attempt_at` is set while it waits to be tried again. `following` names what was begun elsewhere, and is
    waited for. `attempts` are those that have ended."""

    id: Id
    job_id: Id
    org_id: str
    host_id: Id | None
    status: RunState
    attempt_no: int
    max_attempts: int
    next_attempt_at: Instant | None
    lease_owner: str | None
    lease_until: Instant | None
    started_at: Instant | None
    deadline_at: Instant | None
    progress: Document | None
    progress_at: Instant | None
    following: Document | None
    cancel_requested_at: Instant | None
    cancelled_by: str | None
    cancel_reason: str | None
    finished_at: Instant | None
    result: Document | None
    log_ref: str | None
    error_code: str | None
    error: str | None
    dagster_run_id: str | None
    created_by: str
    created_at: Instant
    attempts: tuple[Attempt, ...] = ()


class OrgJob(JsonModel):
    """`status` is that of its newest run, which is the last of `runs`. `start_window` is when attempts may begin."""

    id: Id
    org_id: str
    batch_id: Id | None
    server_instance_id: Id | None
    schedule_id: str | None
    schedule_fire_id: Id | None
    scheduled_for: Instant | None
    type: str
    performer: Performer
    payload: Document
    priority: int
    retry_policy: RetryPolicy
    start_window: Document | None
    status: RunState
    expires_at: Instant | None
    created_by: str
    created_at: Instant
    finished_at: Instant | None
    runs: tuple[OrgJobRun, ...] = ()


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """What is None is not asked for."""

    org_id: str | None = None
    status: RunState | None = None
    type: str | None = None
    schedule_id: str | None = None
    server_instance_id: int | None = None
    batch_id: int | None = None


class QueueStanding(JsonModel):
    """The queue of an organisation. `waiting` may begin now, `retrying` wait for their next attempt, `claimed` are
    given to somebody who has not begun."""

    org_id: str
    name: str
    max_running: int
    waiting: int
    retrying: int
    claimed: int
    running: int
    oldest_waiting_at: Instant | None
    suspended_at: Instant | None
    maintenance_until: Instant | None


class JobMove(JsonModel):
    """A line of a job's log: one of its runs moved from one state to another."""

    id: Id
    run_id: Id
    from_state: RunState
    to_state: RunState
    actor: str
    reason: str | None
    at: Instant
