"""Schedules of organisations: requests, stored schedules, and their fires."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from automation_pipeline.core.clock import Days
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, Instant, JsonModel, as_document, parse
from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.core.scheduling.timing import Planned, TimingFields, WindowPolicy
from automation_pipeline.org_jobs.models.jobs import (
    FireOutcome,
    FireTrigger,
    MisfirePolicy,
    OrgJobsRunState,
    RetryPolicy,
    ScheduleState,
    SkipReason,
)
from automation_pipeline.org_jobs.models.organisations import (
    DAY_MINUTES,
    LONGEST_DESCRIPTION,
    CronText,
    Flag,
    KnownId,
    Name,
    Payload,
    TimeOfDay,
    TimeZone,
    Whole,
    ZonedInstant,
)

DAY_SECONDS = DAY_MINUTES * 60


class OrgScheduleFields(JsonModel):
    """The fields of a schedule. A stored schedule may be invalid, for example because its time zone
    no longer exists."""

    name: Name
    description: str | None = Field(default=None, max_length=LONGEST_DESCRIPTION)
    server_instance_id: KnownId | None = Field(
        default=None,
        description="The server of the job, only for types that agents run.",
    )
    cron_expression: str = Field(
        description="Five cron fields, or a macro such as @daily.", examples=["0 2 * * *"]
    )
    timezone: str = Field(default="UTC", examples=["Europe/Paris"])
    job_type: str = Field(examples=["SERVER_RESTART"])
    payload: Payload = Field(
        default_factory=dict[str, object], description="The data that its job type requires."
    )
    priority: Annotated[Whole, Field(ge=1, le=9, description="1 is done first.")] = 5
    enabled: Flag = True
    execution_window_start: str | None = Field(
        default=None,
        description="The execution window includes its start and its end; give both or neither.",
    )
    execution_window_end: str | None = Field(
        default=None, description="An end before the start is on the next day."
    )
    window_policy: WindowPolicy = Field(
        default=WindowPolicy.CLAMP,
        description="Jobs that are due outside the window: CLAMP delays them to its next start, FILTER skips them.",
    )
    latest_start_cutoff_min: Annotated[Whole, Field(ge=0, lt=DAY_MINUTES)] = Field(
        default=0, description="No job starts in the last minutes of the window."
    )
    retry_policy: RetryPolicy | None = None
    misfire_policy: MisfirePolicy = MisfirePolicy.FIRE_ONCE
    misfire_grace_s: Annotated[Whole, Field(ge=0, le=365 * DAY_SECONDS)] = 3600
    overlap_policy: OverlapPolicy = OverlapPolicy.SKIP
    jitter_s: Annotated[Whole, Field(ge=0, le=DAY_SECONDS)] = 0
    start_at: ZonedInstant | None = None
    end_at: ZonedInstant | None = Field(default=None, description="Included.")
    excluded_on: tuple[str, ...] = Field(
        default=(), description="Days as YYYY-MM-DD in its time zone."
    )
    skip_if_offline: Flag = False
    auto_pause_after: Annotated[Whole, Field(ge=0, le=1000)] = Field(
        default=10,
        description="The number of consecutive failures that pauses the schedule; 0: never.",
    )


class OrgScheduleDefinition(OrgScheduleFields):
    """A schedule in a request."""

    cron_expression: CronText = Field(
        description="Five cron fields, or a macro such as @daily.", examples=["0 2 * * *"]
    )
    timezone: TimeZone = Field(default="UTC", examples=["Europe/Paris"])
    job_type: str = Field(max_length=100, examples=["SERVER_RESTART"])
    execution_window_start: TimeOfDay | None = Field(
        default=None,
        description="The execution window includes its start and its end; give both or neither.",
        examples=["22:00"],
    )
    execution_window_end: TimeOfDay | None = Field(
        default=None, description="An end before the start is on the next day.", examples=["06:00"]
    )
    excluded_on: Days = Field(
        default=(), description="Days as YYYY-MM-DD in its time zone.", examples=[["2026-12-25"]]
    )


class OrgSchedule(OrgScheduleFields):
    """A stored schedule. `next_run_at` is when the next job may start, for the due time
    `next_scheduled_for` of the cron."""

    id: str
    org_id: str
    state: ScheduleState
    paused_until: Instant | None
    pause_reason: str | None
    is_suspended: bool = Field(
        description="Whether it is paused with its organisation, and resumed with it."
    )
    skip_next_run: bool
    skip_next_run_reason: str | None
    skip_next_run_requested_at: Instant | None
    next_run_at: Instant | None
    next_scheduled_for: Instant | None
    last_run_at: Instant | None
    last_run_job_id: Id | None
    last_dispatch_status: str | None
    last_job_status: OrgJobsRunState | None
    last_run_status: str | None
    last_scheduled_for: Instant | None
    run_count: int
    failure_count: int
    consecutive_failures: int
    created_by: str
    created_at: Instant
    updated_at: Instant
    version: int

    @property
    def planned(self) -> Planned | None:
        if self.next_scheduled_for is None or self.next_run_at is None:
            return None
        return Planned(self.next_scheduled_for, self.next_run_at)


class ScheduleFire(JsonModel):
    """A due time of a schedule and its outcome."""

    id: Id
    org_id: str
    schedule_id: str
    scheduled_for: Instant
    effective_for: Instant
    fired_at: Instant
    trigger: FireTrigger
    outcome: FireOutcome
    skip_reason: SkipReason | None
    job_id: Id | None
    job_status: OrgJobsRunState | None
    batch_id: Id | None
    actor: str
    error: str | None
    note: str | None


class Dispatched(JsonModel):
    """The job of a manual run."""

    fire_id: Id
    job_id: Id


def last_run_status(dispatch: str | None, job: str | None) -> str | None:
    """A failure of the scheduler has priority, then a failed job, which a later skip does not hide,
    then a skip."""
    if dispatch is None or dispatch == "scheduler_failed":
        return dispatch
    if dispatch.startswith("skipped_") and job != OrgJobsRunState.FAILED:
        return "skipped"
    return job or "success"


def input_document(schedule: OrgScheduleFields) -> dict[str, object]:
    names = {field.alias or name for name, field in OrgScheduleDefinition.model_fields.items()}
    return {name: value for name, value in as_document(schedule).items() if name in names}


def timing_fields(
    schedule: OrgScheduleFields, seed: str, *, jitter_seconds: int | None = None
) -> TimingFields:
    return TimingFields(
        seed=seed,
        cron_expression=schedule.cron_expression,
        timezone=schedule.timezone,
        window_start=schedule.execution_window_start,
        window_end=schedule.execution_window_end,
        window_policy=schedule.window_policy,
        cutoff_minutes=schedule.latest_start_cutoff_min,
        jitter_seconds=schedule.jitter_s if jitter_seconds is None else jitter_seconds,
        start_at=schedule.start_at,
        end_at=schedule.end_at,
        excluded_on=tuple(schedule.excluded_on),
    )


LONGEST_REASON = 1000

Reason = Annotated[str, Field(max_length=LONGEST_REASON)]


class SkipInput(JsonModel):
    reason: Reason | None = Field(default=None, description="The reason, which is shown to others.")


class OrgPauseInput(SkipInput):
    until: ZonedInstant | None = Field(
        default=None, description="When the schedule is resumed automatically."
    )


def read_pause(reason: str | None, until: datetime | None, now: datetime) -> OrgPauseInput:
    complaint = "Invalid pause data"
    request = parse(OrgPauseInput, {"reason": reason, "until": until}, complaint)
    if request.until is not None and request.until <= now:
        raise InvalidInputError(complaint, (("until", "must be in the future"),))
    return request


def read_skip(reason: str | None) -> SkipInput:
    return parse(SkipInput, {"reason": reason}, "Invalid skip data")
