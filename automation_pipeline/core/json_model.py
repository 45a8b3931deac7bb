"""Types for JSON documents and query strings: the base model, ids, lists, days and instants."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, TypeVar, cast
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    field_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.zones import FIRST_PASS, instant_of

_HALF_PAIR = re.compile("[\ud800-\udfff]")


class JsonModel(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, extra="forbid", frozen=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _can_be_stored(cls, given: object) -> object:
        for text in _texts(given):
            fault = text_fault(text)
            if fault is not None:
                raise ValueError(fault)
        return given


def as_document(model: JsonModel) -> dict[str, object]:
    return model.model_dump(mode="json", by_alias=True)


def text_fault(text: str) -> str | None:
    """Why a database cannot store the text; None if it can. JSON escapes and terminals can produce
    half of a surrogate pair."""
    if "\0" in text:
        return "must not hold the character NUL"
    return "must not hold half a character" if _HALF_PAIR.search(text) else None


def is_deeper(document: object, max_depth: int) -> bool:
    """Whether lists and objects are nested more than `max_depth` levels deep."""
    level = [document]
    for _ in range(max_depth + 1):
        deeper: list[object] = []
        for value in level:
            if isinstance(value, Mapping):
                deeper += cast("Mapping[str, object]", value).values()
            elif isinstance(value, list | tuple):
                deeper += cast("Sequence[object]", value)
        if not deeper:
            return False
        level = deeper
    return True


def _texts(given: object) -> Iterator[str]:
    """The texts of a value and of nested lists. Nested models check their own texts."""
    left = [given]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple):
            left.extend(cast("Sequence[object]", value))


LARGEST_ID = 2**63 - 1

Id = Annotated[int, Field(le=LARGEST_ID), PlainSerializer(str, return_type=str, when_used="json")]
# Ids are texts in responses, and texts or numbers in requests.
ID_DIGITS = "[1-9][0-9]{0,18}"
ID_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": LARGEST_ID},
        {"type": "string", "pattern": f"^{ID_DIGITS}$"},
    ],
    "examples": ["11"],
}
Instant = Annotated[datetime, PlainSerializer(iso, return_type=str, when_used="json")]

Model = TypeVar("Model", bound=JsonModel)


def parse(model: type[Model], given: Mapping[str, object], message: str) -> Model:
    """Raises InvalidInputError with all invalid fields. Only aliases are accepted as names of
    fields."""
    bad_names = {name: fault for name in given if (fault := text_fault(name))}
    faults = tuple((escape_surrogates(name), fault) for name, fault in bad_names.items())
    try:
        value = model.model_validate(
            {name: given[name] for name in given if name not in bad_names},
            by_alias=True,
            by_name=False,
        )
    except ValidationError as error:
        raise InvalidInputError(message, faults + field_errors(error)) from None
    if faults:
        raise InvalidInputError(message, faults)
    return value


def escape_surrogates(text: str) -> str:
    """The text in a form that can be sent and printed: halves of surrogate pairs become escapes."""
    return text.encode(errors="backslashreplace").decode()


_MESSAGES = {
    "extra_forbidden": "is not a known field",
    "missing": "is required",
    "string_type": "must be a text",
    "string_too_short": "must have at least {min_length} {characters}",
    "string_too_long": "must have at most {max_length} {characters}",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "too_short": "must have at least {min_length} {entries}",
    "too_long": "must have at most {max_length} {entries}",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "url_type": "must be a web address",
    "url_parsing": "must be a web address",
    "url_scheme": "must be an address that begins with {expected_schemes}",
    "url_too_long": "must have at most {max_length} characters",
}
_LENGTHS = ("min_length", "max_length")


def field_errors(error: ValidationError) -> tuple[tuple[str, str], ...]:
    """Pairs of a field and its fault. A fault of a whole model has no field unless its validator
    raises a `field_fault`."""
    return plain_faults(error.errors())


def plain_faults(problems: Iterable[ErrorDetails]) -> tuple[tuple[str, str], ...]:
    """A list with invalid entries is not reported as too short: pydantic counts only valid ones."""
    result = tuple(problems)
    parents = {problem["loc"][:depth] for problem in result for depth in range(len(problem["loc"]))}
    faults: list[tuple[str, str]] = []
    for problem in result:
        if problem["type"] != "too_short" or problem["loc"] not in parents:
            named = [problem.get("ctx", {})["field"]] if problem["type"] == "field_fault" else []
            faults.append((".".join(map(str, (*problem["loc"], *named))), _message_of(problem)))
    return tuple(faults)


def field_fault(field: str, fault: str) -> PydanticCustomError:
    """An error that a validator of a whole model raises to name the invalid field."""
    return PydanticCustomError("field_fault", "{fault}", {"field": field, "fault": fault})


def _message_of(problem: ErrorDetails) -> str:
    known = _MESSAGES.get(problem["type"])
    if known is None:
        return problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    facts = problem.get("ctx", {})
    is_one = any(facts.get(length) == 1 for length in _LENGTHS)
    nouns = {"characters": "character", "entries": "entry"} if is_one else {}
    return known.format(**{"characters": "characters", "entries": "entries"} | nouns | facts)


Entry = TypeVar("Entry")

# The largest value of PostgreSQL's integer columns.
LARGEST_COUNT = 2**31 - 1

_DIGITS = re.compile(r"[0-9]{1,32}")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
# Responses show instants to the millisecond, so a given instant stands for the whole millisecond.
_SHOWN = timedelta(milliseconds=1)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def split(given: object) -> object:
    """`a,b` and a repeated parameter give the same list."""
    if isinstance(given, str):
        return [entry.strip() for entry in given.split(",") if entry.strip()]
    if isinstance(given, list | tuple):
        parts = [split(entry) for entry in cast("list[object]", given)]
        return [
            entry
            for part in parts
            for entry in (cast("list[object]", part) if isinstance(part, list) else [part])
        ]
    return given


def read_day(given: object) -> date:
    message = "must be a day (YYYY-MM-DD)"
    moment = _read(given, message)
    if type(moment) is not date:
        raise ValueError(message)
    return moment


def read_moment(given: object) -> datetime | date:
    """A `date` for a calendar day, otherwise a `datetime`, which may have no zone."""
    return _read(given, "must be a day (YYYY-MM-DD) or an ISO 8601 date-time")


def begin_of(moment: datetime | date, zone: ZoneInfo) -> datetime:
    """The first instant of the moment. Instants beyond the calendar become its first or last one."""
    wall = moment if isinstance(moment, datetime) else datetime.combine(moment, time.min)
    try:
        return (wall if wall.tzinfo else instant_of(wall, zone, FIRST_PASS)).astimezone(UTC)
    except OverflowError:
        return _LAST if wall.year > 1 else _FIRST


def end_of(moment: datetime | date, zone: ZoneInfo) -> datetime:
    try:
        if isinstance(moment, datetime):
            return begin_of(moment, zone) + _SHOWN
        return begin_of(moment + timedelta(days=1), zone)
    except OverflowError:
        return _LAST


def _read(given: object, message: str) -> datetime | date:
    if isinstance(given, date):
        return given
    text = str(given).strip().upper()
    try:
        return (
            date.fromisoformat(text)
            if _DAY.fullmatch(text)
            # An unescaped `+` of a zone arrives as a space.
            else datetime.fromisoformat(re.sub(r" (\d{2}:?\d{2})$", r"+\1", text))
        )
    except ValueError:
        raise ValueError(message) from None


_MOMENT_SCHEMA = {
    "anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}],
    "description": "A day (`YYYY-MM-DD`), or an ISO 8601 date-time.",
    "examples": ["2026-02-03", "2026-02-03T10:00:00Z"],
}
_DAY_SCHEMA = {"type": "string", "format": "date", "examples": ["2026-02-03"]}


def _digits(given: str) -> str:
    if not _DIGITS.fullmatch(given):
        raise ValueError("must be made of digits, 32 at most")
    return given


ListOf = Annotated[tuple[Entry, ...], BeforeValidator(split)]
RowId = Annotated[int, Field(ge=1, le=LARGEST_ID)]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
BigCount = Annotated[int, Field(ge=0, le=LARGEST_ID)]
SearchText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)]
Day = Annotated[date, PlainValidator(read_day), WithJsonSchema(_DAY_SCHEMA)]
Moment = Annotated[datetime | date, PlainValidator(read_moment), WithJsonSchema(_MOMENT_SCHEMA)]
DigitsText = Annotated[
    str, AfterValidator(_digits), WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,32}$"})
]
