"""A schedule: what an operator configures. Field names outside are those of the HTTP API."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self, cast

from pydantic import AfterValidator, BeforeValidator, Field, HttpUrl, SecretStr, TypeAdapter, model_validator

from automation_pipeline.automation.domain.selection import FicheSelection
from automation_pipeline.core.cron import Cron
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, Instant, JsonModel, parse
from automation_pipeline.core.wall_clock import zone


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


def _time_zone(name: str) -> str:
    try:
        zone(name)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None
    return name


def _cron(expression: str | None) -> str | None:
    if not expression:
        return None
    try:
        Cron.parse(expression)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None
    return expression


def _web_address(url: str | None) -> str | None:
    if not url:
        return None
    TypeAdapter(HttpUrl).validate_python(url)
    return url


def _email(address: str) -> str:
    if not re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", address):
        raise ValueError("is not an e-mail address")
    return address


def _none_is_empty(given: object) -> object:
    return () if given is None else given


def _without_blanks(given: object) -> object:
    if not isinstance(given, list):
        return _none_is_empty(given)
    entries = [entry.strip() if isinstance(entry, str) else entry for entry in cast("list[object]", given)]
    return [entry for entry in entries if entry]


def _time_of_day(text: str | None) -> str | None:
    if not text:
        return None
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", text):
        raise ValueError("must be a time of day between 00:00 and 23:59")
    return text


class ScheduleInput(JsonModel):
    name: str = Field(min_length=1, max_length=255)
    description: str | None = None
    created_by: str | None = None
    is_active: bool = True
    schedule_type: ScheduleType
    cron_expression: Annotated[str | None, AfterValidator(_cron)] = None
    timezone: Annotated[str, AfterValidator(_time_zone)] = "UTC"
    time_of_day: Annotated[str | None, AfterValidator(_time_of_day)] = None
    day_of_week: Annotated[int | None, Field(ge=0, le=6)] = None
    day_of_month: Annotated[int | None, Field(ge=1, le=31)] = None
    fiche_selection: FicheSelection
    run_transcription: bool = True
    skip_if_transcribed: bool = True
    transcription_priority: Priority = Priority.NORMAL
    run_audits: bool = True
    use_automatic_audits: bool = True
    specific_audit_configs: Annotated[tuple[Id, ...], BeforeValidator(_none_is_empty)] = ()
    continue_on_error: bool = True
    retry_failed: bool = False
    max_retries: int = Field(default=0, ge=0, le=5)
    notify_on_complete: bool = True
    notify_on_error: bool = True
    webhook_url: Annotated[str | None, AfterValidator(_web_address)] = None
    notify_emails: Annotated[tuple[Annotated[str, AfterValidator(_email)], ...], BeforeValidator(_without_blanks)] = ()
    external_api_key: SecretStr | None = None

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> Self:
        complaint = missing_for(self)
        if complaint:
            raise ValueError(complaint)
        return self


class Schedule(ScheduleInput):
    """A stored schedule."""

    id: Id
    last_run_at: Instant | None
    last_run_status: str | None
    total_runs: int
    successful_runs: int
    failed_runs: int
    created_at: Instant
    updated_at: Instant


def missing_for(schedule: ScheduleInput) -> str | None:
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


def cron_of(schedule: ScheduleInput) -> Cron | None:
    """When the schedule is due; None for one that is started by hand only."""
    if schedule.schedule_type is ScheduleType.MANUAL:
        return None
    if schedule.schedule_type is ScheduleType.CRON:
        return Cron.parse(schedule.cron_expression or "")
    hour, minute = (schedule.time_of_day or "").split(":")
    days = {
        ScheduleType.DAILY: "* * *",
        ScheduleType.WEEKLY: f"* * {schedule.day_of_week}",
        ScheduleType.MONTHLY: f"{schedule.day_of_month} * *",
    }
    return Cron.parse(f"{int(minute)} {int(hour)} {days[schedule.schedule_type]}")


def parse_schedule(given: Mapping[str, object]) -> ScheduleInput:
    return parse(ScheduleInput, given, "Invalid automation schedule data")


def parse_selection(given: Mapping[str, object]) -> FicheSelection:
    return parse(FicheSelection, given, "Invalid fiche selection data")
