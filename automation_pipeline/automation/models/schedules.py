"""Schedules: what an operator configures, and the cron expressions that follow from it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

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
from automation_pipeline.core.days import Days
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
    """Which of the occurrences that an outage swallowed are run after it."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class ScheduleFields(JsonModel):
    """What a schedule says, but for its selection. A stored one may have gone wrong: its zone may
    be gone."""

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
        description="What happens to a due time while a run of the schedule is not over. SKIP: it does not run, unless "
        "`catchUp` catches up with it. BUFFER_ONE: the newest waits for the end of the run. BUFFER_ALL: all wait, "
        "`catchUpLimit` at most. CANCEL_OTHER: the run is cancelled, and the new one starts once it had time to stop. "
        "TERMINATE_OTHER: the run is cancelled, and the new one starts at once. ALLOW_ALL: both run.",
    )
    excluded_on: tuple[str, ...] = Field(
        default=(), description="Days as YYYY-MM-DD in its time zone on which it is not run."
    )


# A change of one of them changes when the schedule is due.
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
    """A schedule as people give it."""

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
        description="Days as YYYY-MM-DD in its time zone on which it is not run.",
        examples=[["2026-12-25"]],
    )
    fiche_selection: SelectionInput

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> Self:
        complaint = missing_for(self)
        if complaint:
            raise field_fault(missing_field(self), complaint)
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


def missing_for(schedule: ScheduleFields) -> str | None:
    """What the schedule's type needs and is not there, as one sentence."""
    match schedule.schedule_type:
        case ScheduleType.DAILY if schedule.time_of_day is None:
            return "DAILY schedule requires timeOfDay"
        case ScheduleType.WEEKLY if schedule.time_of_day is None or schedule.day_of_week is None:
            return "WEEKLY schedule requires timeOfDay and dayOfWeek"
        case ScheduleType.MONTHLY if schedule.time_of_day is None or schedule.day_of_month is None:
            return "MONTHLY schedule requires timeOfDay and dayOfMonth"
        case ScheduleType.CRON if not schedule.cron_expression:
            return "CRON schedule requires cronExpression"
        case _:
            return None


def missing_field(schedule: ScheduleFields) -> str:
    """The first field that the schedule's type needs and that is not there."""
    if schedule.schedule_type is ScheduleType.CRON:
        return "cronExpression"
    if schedule.time_of_day is None:
        return "timeOfDay"
    return "dayOfWeek" if schedule.schedule_type is ScheduleType.WEEKLY else "dayOfMonth"


def cron_expression_of(schedule: ScheduleFields) -> str | None:
    """The schedule's times as one cron expression: its own for CRON, derived for the others, None
    for MANUAL."""
    if schedule.schedule_type in {ScheduleType.CRON, ScheduleType.MANUAL} or missing_for(schedule):
        return schedule.cron_expression
    hour, minute = (schedule.time_of_day or "").split(":")
    days = {
        ScheduleType.WEEKLY: f"* * {schedule.day_of_week}",
        ScheduleType.MONTHLY: f"{schedule.day_of_month} * *",
    }
    return f"{int(minute)} {int(hour)} {days.get(schedule.schedule_type, '* * *')}"


def crons_of(schedule: ScheduleFields) -> tuple[Cron, ...]:
    """When the schedule is due: no two fire in the same minute. Empty for one that is started by
    hand only.

    InvalidInputError for a stored one that lacks what its type needs.
    """
    complaint = missing_for(schedule)
    if complaint:
        raise InvalidInputError(complaint)
    if schedule.schedule_type is ScheduleType.MANUAL:
        return ()
    if schedule.schedule_type is ScheduleType.CRON:
        return (Cron.parse(schedule.cron_expression or ""),)
    hour, minute = (schedule.time_of_day or "").split(":")
    return tuple(Cron.parse(f"{int(minute)} {int(hour)} {days}") for days in _days_of(schedule))


def _days_of(schedule: ScheduleFields) -> tuple[str, ...]:
    day = schedule.day_of_month or 1
    match schedule.schedule_type:
        case ScheduleType.WEEKLY:
            return (f"* * {schedule.day_of_week}",)
        case ScheduleType.MONTHLY if (
            schedule.short_months is ShortMonths.LAST_DAY and day > SHORTEST_MONTH
        ):
            # Only February lacks the 29th or the 30th; its last day is the 29th itself in a leap
            # year.
            return ("L * *",) if day == LONGEST_MONTH else (f"{day} 1,3-12 *", "L 2 *")
        case ScheduleType.MONTHLY:
            return (f"{day} * *",)
        case _:
            return ("* * *",)


def parse_schedule(given: Mapping[str, object]) -> ScheduleInput:
    return parse(ScheduleInput, given, INVALID_SCHEDULE)
