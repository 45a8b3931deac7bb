"""Schedules: what an operator configures, and the cron expressions derived from it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic.alias_generators import to_camel

from automation_pipeline.automation.models.runs import RunStatus
from automation_pipeline.automation.models.selections import (
    ApiKey,
    CronText,
    Emails,
    FicheSelection,
    Flag,
    KnownIds,
    Name,
    SelectionInput,
    TimeOfDay,
    TimeZone,
    TrimmedTexts,
    WebAddress,
    Whole,
    not_blank,
)
from automation_pipeline.core.clock import Days
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, Instant, JsonModel, field_fault, parse
from automation_pipeline.core.scheduling.cron import Cron
from automation_pipeline.core.scheduling.plan import OverlapPolicy

INVALID_SCHEDULE = "Invalid automation schedule data"
SHORTEST_MONTH, LONGEST_MONTH = 28, 31


class ScheduleType(StrEnum):
    MANUAL = "MANUAL"
    DAILY = "DAILY"
    WEEKLY = "WEEKLY"
    MONTHLY = "MONTHLY"
    CRON = "CRON"


class Priority(StrEnum):
    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class ShortMonths(StrEnum):
    """What a MONTHLY schedule does in a month that lacks its day."""

    SKIP = "skip"
    LAST_DAY = "last_day"


class CatchUp(StrEnum):
    """Which occurrences missed during an outage run after it."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class ScheduleFields(JsonModel):
    """The fields of a schedule without its selection. Those of a stored schedule may be invalid, for
    example when its time zone no longer exists."""

    name: str = Field(min_length=1, max_length=255)
    description: str | None = None
    created_by: str | None = None
    is_active: Flag = True
    schedule_type: ScheduleType
    cron_expression: str | None = None
    timezone: str = "UTC"
    time_of_day: TimeOfDay = None
    day_of_week: Annotated[Whole | None, Field(ge=0, le=6)] = None
    day_of_month: Annotated[Whole | None, Field(ge=1, le=31)] = None
    run_transcription: Flag = True
    skip_if_transcribed: Flag = True
    transcription_priority: Priority = Priority.NORMAL
    run_audits: Flag = True
    use_automatic_audits: Flag = True
    specific_audit_configs: tuple[Id, ...] = ()
    continue_on_error: Flag = True
    retry_failed: Flag = False
    max_retries: Whole = Field(default=0, ge=0, le=5)
    notify_on_complete: Flag = True
    notify_on_error: Flag = True
    webhook_url: str | None = None
    notify_emails: TrimmedTexts = ()
    external_api_key: SecretStr | None = None
    short_months: ShortMonths = ShortMonths.SKIP
    catch_up: CatchUp = CatchUp.SKIP
    catch_up_limit: Whole = Field(default=10, ge=1, le=100)
    jitter_seconds: Whole = Field(default=0, ge=0, le=3600)
    pause_after_failures: Annotated[Whole | None, Field(ge=1, le=100)] = None
    overlap_policy: OverlapPolicy = Field(
        default=OverlapPolicy.SKIP,
        description="What happens to a due time while a run is unfinished. SKIP: it does not run, unless "
        "`catchUp` catches up with it. BUFFER_ONE: the newest waits for the end of the run. BUFFER_ALL: all wait, "
        "`catchUpLimit` at most. CANCEL_OTHER: the run is cancelled, and the new one starts when it has stopped. "
        "TERMINATE_OTHER: the run is cancelled, and the new one starts at once. ALLOW_ALL: both run.",
    )
    excluded_on: tuple[str, ...] = Field(
        default=(), description="Days as YYYY-MM-DD in its time zone on which it does not run."
    )


# The due times of a schedule depend on these fields.
TIMING_FIELDS = {
    "schedule_type",
    "cron_expression",
    "timezone",
    "time_of_day",
    "day_of_week",
    "day_of_month",
    "short_months",
}


class ScheduleInput(ScheduleFields):
    """A schedule as clients send it."""

    name: Annotated[str, Field(min_length=1, max_length=255), AfterValidator(not_blank)]
    description: Annotated[str | None, Field(max_length=50_000)] = None
    created_by: Name | None = None
    cron_expression: CronText = None
    timezone: TimeZone = "UTC"
    specific_audit_configs: KnownIds = ()
    webhook_url: WebAddress = None
    notify_emails: Emails = ()
    external_api_key: ApiKey = None
    excluded_on: Days = Field(
        default=(),
        description="Days as YYYY-MM-DD in its time zone on which it does not run.",
        examples=[["2026-12-25"]],
    )
    fiche_selection: SelectionInput

    @model_validator(mode="after")
    def _has_what_its_type_requires(self) -> Self:
        missing = missing_field(self)
        if missing is not None:
            raise field_fault(*missing)
        return self


class Schedule(ScheduleFields):
    """A stored schedule."""

    id: Id
    fiche_selection: FicheSelection
    last_run_at: Instant | None
    last_run_status: str | None
    failures_in_a_row: int
    paused_reason: str | None
    skip_due_at: Instant | None
    last_due_at: Instant | None
    total_runs: int
    successful_runs: int
    failed_runs: int
    created_at: Instant
    updated_at: Instant


_REQUIRED = {
    ScheduleType.DAILY: ("time_of_day",),
    ScheduleType.WEEKLY: ("time_of_day", "day_of_week"),
    ScheduleType.MONTHLY: ("time_of_day", "day_of_month"),
    ScheduleType.CRON: ("cron_expression",),
}


def missing_field(schedule: ScheduleFields) -> tuple[str, str] | None:
    """The first field that the schedule's type requires and the schedule lacks, with the rule."""
    required = _REQUIRED.get(schedule.schedule_type, ())
    names = [to_camel(name) for name in required]
    for name, value in zip(names, (getattr(schedule, name) for name in required), strict=True):
        if value is None or value == "":
            return name, f"{schedule.schedule_type} schedule requires {' and '.join(names)}"
    return None


def cron_expression_of(schedule: ScheduleFields) -> str | None:
    """The times of the schedule as one cron expression. None for a MANUAL schedule."""
    own = schedule.schedule_type in {ScheduleType.CRON, ScheduleType.MANUAL}
    if own or missing_field(schedule) is not None:
        return schedule.cron_expression
    hour, minute = (schedule.time_of_day or "").split(":")
    days = {
        ScheduleType.WEEKLY: f"* * {schedule.day_of_week}",
        ScheduleType.MONTHLY: f"{schedule.day_of_month} * *",
    }
    return f"{int(minute)} {int(hour)} {days.get(schedule.schedule_type, '* * *')}"


def crons_of(schedule: ScheduleFields) -> tuple[Cron, ...]:
    """The crons of the schedule, no two of which fire in the same minute; none for a MANUAL one.
    InvalidInputError: a stored schedule lacks what its type requires."""
    missing = missing_field(schedule)
    if missing is not None:
        raise InvalidInputError(missing[1])
    if schedule.schedule_type is ScheduleType.MANUAL:
        return ()
    expression = cron_expression_of(schedule) or ""
    day = schedule.day_of_month or 1
    is_monthly = schedule.schedule_type is ScheduleType.MONTHLY
    if not is_monthly or schedule.short_months is ShortMonths.SKIP or day <= SHORTEST_MONTH:
        return (Cron.parse(expression),)
    # Only February lacks the 29th or the 30th. In a leap year its last day is the 29th itself.
    days = ("L * *",) if day == LONGEST_MONTH else (f"{day} 1,3-12 *", "L 2 *")
    minute, hour, *_ = expression.split()
    return tuple(Cron.parse(f"{minute} {hour} {one}") for one in days)


class OccurrenceShown(JsonModel):
    """Either a run, or the reason for none."""

    due_at: Instant
    run_id: Id | None
    run_status: RunStatus | None
    not_run_because: str | None
    decided_at: Instant


def parse_schedule(given: Mapping[str, object]) -> ScheduleInput:
    return parse(ScheduleInput, given, INVALID_SCHEDULE)
