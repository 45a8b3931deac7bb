"""Schedules with their selections: what an operator configures, and what follows from it."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Annotated, Self, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    HttpUrl,
    SecretStr,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from automation_pipeline.automation.models.runs import RunStatus
from automation_pipeline.core.clock import Days
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import (
    ID_SCHEMA,
    Id,
    Instant,
    JsonModel,
    field_fault,
    parse,
)
from automation_pipeline.core.scheduling.cron import Cron, OverlapPolicy
from automation_pipeline.core.scheduling.zones import zone

MAX_KEY_LENGTH = 1000


def not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _known_zone(name: str) -> str:
    try:
        zone(name)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None
    return name


def _unless_empty(parse_text: Callable[[str], str]) -> AfterValidator:
    """Validate the text; an empty one becomes None."""
    return AfterValidator(lambda text: parse_text(text) if text else None)


def _readable_cron(expression: str) -> str:
    try:
        Cron.parse(expression)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None
    return expression


def _time_of_day(text: str) -> str:
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", text):
        raise ValueError("must be a time of day between 00:00 and 23:59")
    return text


def _web_address(url: str) -> str:
    TypeAdapter(HttpUrl).validate_python(url)
    return url


def _email(address: str) -> str:
    if not re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", address):
        raise ValueError("is not an e-mail address")
    return address


def _not_masked(key: SecretStr | None) -> SecretStr | None:
    """The API returns a schedule with a masked key: a client that sends the mask back must not
    overwrite the key."""
    if key is None or not key.get_secret_value():
        return None
    if not key.get_secret_value().strip("*"):
        raise ValueError("is the mask of a key, not a key: leave it out to keep the stored one")
    if len(key) > MAX_KEY_LENGTH:
        raise ValueError(f"must have at most {MAX_KEY_LENGTH} characters")
    return key


def format_day(day: date) -> str:
    return f"{day:%d/%m}/{day.year:04}"


def parse_day(text: str) -> date:
    """The day that DD/MM/YYYY or YYYY-MM-DD names; ValueError for anything else."""
    found = re.fullmatch(r"(?a:(\d\d)/(\d\d)/(\d{4})|(\d{4})-(\d\d)-(\d\d))", text)
    if found is None:
        raise ValueError("must be a day as DD/MM/YYYY or YYYY-MM-DD")
    parts = [int(part) for part in found.groups() if part]
    year, month, day = parts if "-" in text else reversed(parts)
    try:
        return date(year, month, day)
    except ValueError:
        raise ValueError(f"{text} is not a day of the calendar") from None


def _none_is_empty(given: object) -> object:
    return () if given is None else given


def split_ids(entries: Iterable[str]) -> list[str]:
    """Every id in order, with repeats. One entry may hold several, separated by blanks or
    commas."""
    return " ".join(entries).replace(",", " ").split()


def _one_by_one(given: object) -> object:
    if not isinstance(given, list | tuple):
        return _none_is_empty(given)
    entries = cast("list[object]", given)
    texts = [entry for entry in entries if isinstance(entry, str)]
    return split_ids(texts) if len(texts) == len(entries) else entries


def _without_blanks(given: object) -> object:
    if not isinstance(given, list | tuple):
        return _none_is_empty(given)
    entries = [
        entry.strip() if isinstance(entry, str) else entry for entry in cast("list[object]", given)
    ]
    return [entry for entry in entries if entry != ""]


def _number_or_digits(given: object) -> object:
    if isinstance(given, bool | float) or (
        isinstance(given, str) and not re.fullmatch(r"(?a:\d+)", given)
    ):
        raise ValueError("must be a whole number, or its digits as a string")
    return given


Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
TimeZone = Annotated[str, AfterValidator(_known_zone)]
CronText = Annotated[str | None, Field(max_length=255), _unless_empty(_readable_cron)]
TimeOfDay = Annotated[str | None, _unless_empty(_time_of_day)]
WebAddress = Annotated[str | None, _unless_empty(_web_address)]
ApiKey = Annotated[SecretStr | None, AfterValidator(_not_masked)]
Day = Annotated[str | None, _unless_empty(lambda text: format_day(parse_day(text)))]
Name = Annotated[str, Field(max_length=255)]
Email = Annotated[str, Field(max_length=320), AfterValidator(_email)]
Emails = Annotated[tuple[Email, ...], Field(max_length=1000), BeforeValidator(_without_blanks)]
FicheId = Annotated[str, Field(max_length=64)]
FicheIds = Annotated[tuple[FicheId, ...], Field(max_length=10_000), BeforeValidator(_one_by_one)]
Groupes = Annotated[tuple[Name, ...], Field(max_length=1000), BeforeValidator(_without_blanks)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_none_is_empty)]
TrimmedTexts = Annotated[tuple[str, ...], BeforeValidator(_without_blanks)]
KnownId = Annotated[
    Id,
    Field(ge=1),
    BeforeValidator(_number_or_digits),
    WithJsonSchema(ID_SCHEMA, mode="validation"),
]
KnownIds = Annotated[
    tuple[KnownId, ...],
    Field(max_length=1000),
    AfterValidator(lambda ids: tuple(dict.fromkeys(ids))),
    BeforeValidator(_none_is_empty),
]


_AT_LEAST_ONE = Field(ge=1, le=2**31 - 1)
Count = Annotated[int, _AT_LEAST_ONE]
WholeCount = Annotated[Whole, _AT_LEAST_ONE]


class SelectionMode(StrEnum):
    DATE_RANGE = "date_range"
    MANUAL = "manual"
    FILTER = "filter"


class DatePreset(StrEnum):
    LAST_24H = "last_24h"
    YESTERDAY = "yesterday"
    LAST_WEEK = "last_week"
    LAST_MONTH = "last_month"
    CUSTOM = "custom"


class FicheSelection(JsonModel):
    """`filter` and `date_range` are synonyms: both select by the days of the sale."""

    mode: SelectionMode
    date_range: DatePreset | None = None
    custom_start_date: str | None = None
    custom_end_date: str | None = None
    groupes: TrimmedTexts = ()
    only_with_recordings: bool = False
    only_unaudited: bool = False
    use_rlm: bool = False
    max_fiches: Count | None = None
    max_recordings_per_fiche: Count | None = None
    fiche_ids: Texts = ()


class SelectionInput(FicheSelection):
    """A selection as clients send it. Without a last day, `custom` is the first day alone."""

    custom_start_date: Day = None
    custom_end_date: Day = None
    groupes: Groupes = ()
    only_with_recordings: Flag = False
    only_unaudited: Flag = False
    use_rlm: Flag = False
    max_fiches: WholeCount | None = None
    max_recordings_per_fiche: WholeCount | None = None
    fiche_ids: FicheIds = ()

    @model_validator(mode="before")
    @classmethod
    def _add_missing_fields(cls, given: object) -> object:
        """A validator can report a missing field only if the field is present."""
        if not isinstance(given, dict):
            return given
        return {"dateRange": None, "customStartDate": None, **cast("dict[str, object]", given)}

    @field_validator("date_range")
    @classmethod
    def _require_date_range(
        cls, preset: DatePreset | None, info: ValidationInfo
    ) -> DatePreset | None:
        mode: SelectionMode | None = info.data.get("mode")
        if preset is None and mode in {SelectionMode.DATE_RANGE, SelectionMode.FILTER}:
            raise ValueError(f"is required when the mode is {mode}")
        return preset

    @field_validator("custom_start_date")
    @classmethod
    def _require_custom_start(cls, start: str | None, info: ValidationInfo) -> str | None:
        if start is None and info.data.get("date_range") is DatePreset.CUSTOM:
            raise ValueError("is required when dateRange is custom")
        return start

    @field_validator("custom_end_date")
    @classmethod
    def _refuse_end_before_start(cls, end: str | None, info: ValidationInfo) -> str | None:
        start: str | None = info.data.get("custom_start_date")
        if start and end and parse_day(end) < parse_day(start):
            raise ValueError("must not lie before customStartDate")
        return end


def parse_selection(given: Mapping[str, object]) -> SelectionInput:
    return parse(SelectionInput, given, "Invalid fiche selection data")


class DropReason(StrEnum):
    """Why a candidate is not part of the run."""

    DUPLICATES = "duplicates"
    GROUPE_NOT_SELECTED = "groupe_not_selected"
    AUDITED = "audited"
    OVER_MAX_FICHES = "over_max_fiches"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    DropReason.DUPLICATES: "Listed more than once",
    DropReason.GROUPE_NOT_SELECTED: "Groupe not selected",
    DropReason.AUDITED: "Already audited",
    DropReason.OVER_MAX_FICHES: "Beyond maxFiches",
}


class EmptyReason(StrEnum):
    """Why a run has no fiches."""

    NO_FICHES_MANUAL = "no_fiches_manual"
    NO_DATES = "no_dates"
    NO_FICHES_FOUND = "no_fiches_found"

    @property
    def message(self) -> str:
        return "No dates to query" if self is EmptyReason.NO_DATES else "No fiches found"


@dataclass(frozen=True)
class FicheCandidate:
    """A fiche from the mirror; a fiche that is not mirrored has only its id. `audited`: the fiche
    has a latest audit of some configuration, however it ended."""

    fiche_id: str
    groupe: str | None = None
    audited: bool = False


@dataclass(frozen=True)
class FicheChoice:
    """Every candidate is kept or counted under one reason; `reasons` has the reason of each dropped
    fiche, except repeats."""

    kept: tuple[str, ...]
    dropped: Mapping[DropReason, int]
    reasons: Mapping[str, DropReason] = field(default_factory=dict[str, DropReason])


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
TIMING_FIELDS = (
    "schedule_type",
    "timezone",
    "cron_expression",
    "time_of_day",
    "day_of_week",
    "day_of_month",
    "short_months",
)


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
    Raises InvalidInputError if a stored schedule lacks what its type requires."""
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


_FROZEN = {
    "run_transcription",
    "skip_if_transcribed",
    "transcription_priority",
    "run_audits",
    "use_automatic_audits",
    "specific_audit_configs",
    "continue_on_error",
    "retry_failed",
    "max_retries",
}


def frozen_options(schedule: Schedule) -> dict[str, object]:
    return schedule.model_dump(mode="json", include=_FROZEN)


def with_frozen_options(schedule: Schedule, document: object) -> Schedule:
    """The schedule with the options that the run froze. Without a document, the schedule with its
    current options."""
    if not isinstance(document, dict):
        return schedule
    frozen = Schedule.model_validate({**schedule.model_dump(), **document})
    return schedule.model_copy(update={name: getattr(frozen, name) for name in _FROZEN})
