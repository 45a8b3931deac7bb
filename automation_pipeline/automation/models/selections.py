"""Fiche selections: their fields and validation rules, and the candidates that they apply to."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Annotated, cast

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

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import ID_SCHEMA, Id, JsonModel, parse
from automation_pipeline.core.scheduling.cron import Cron
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


def _readable_cron(expression: str | None) -> str | None:
    if not expression:
        return None
    try:
        Cron.parse(expression)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None
    return expression


def _time_of_day(text: str | None) -> str | None:
    if not text:
        return None
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", text):
        raise ValueError("must be a time of day between 00:00 and 23:59")
    return text


def _web_address(url: str | None) -> str | None:
    if not url:
        return None
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


def _day(text: str | None) -> str | None:
    return format_day(parse_day(text)) if text else None


def format_day(day: date) -> str:
    return f"{day:%d/%m}/{day.year:04}"


def parse_day(text: str) -> date:
    """The day that DD/MM/YYYY or YYYY-MM-DD names; ValueError for anything else."""
    found = re.fullmatch(r"(?a:(\d\d)/(\d\d)/(\d{4})|(\d{4})-(\d\d)-(\d\d))", text)
    if found is None:
        raise ValueError("must be a day as DD/MM/YYYY or YYYY-MM-DD")
    parts = [int(part) for part in found.groups() if part]
    year, month, day = parts if "-" in text else reversed(parts)
    if year == 0 or not _exists(year, month, day):
        raise ValueError(f"{text} is not a day of the calendar")
    return date(year, month, day)


def _exists(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


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


def _once_each(ids: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(ids))


Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
TimeZone = Annotated[str, AfterValidator(_known_zone)]
CronText = Annotated[str | None, Field(max_length=255), AfterValidator(_readable_cron)]
TimeOfDay = Annotated[str | None, AfterValidator(_time_of_day)]
WebAddress = Annotated[str | None, AfterValidator(_web_address)]
ApiKey = Annotated[SecretStr | None, AfterValidator(_not_masked)]
Day = Annotated[str | None, AfterValidator(_day)]
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
    AfterValidator(_once_each),
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
