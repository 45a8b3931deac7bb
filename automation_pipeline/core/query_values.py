"""What stands in query strings: lists with commas, days or instants, and what those mean on a
zone's wall clock."""

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, TypeVar, cast
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
)

from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.core.scheduling.zones import FIRST_PASS, instant_of

Entry = TypeVar("Entry")

# Columns of numbers are so wide on PostgreSQL.
LARGEST_COUNT = 2**31 - 1

_DIGITS = re.compile(r"[0-9]{1,32}")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
# Instants are shown to the millisecond: the one that is shown means all of them.
_SHOWN = timedelta(milliseconds=1)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def split(given: object) -> object:
    """`a,b` and a parameter that is given twice are the same list."""
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
    complaint = "must be a day (YYYY-MM-DD)"
    moment = _read(given, complaint)
    if type(moment) is not date:
        raise ValueError(complaint)
    return moment


def read_moment(given: object) -> datetime | date:
    """A calendar day as a `date`, anything longer as a `datetime`, which may lack its zone."""
    return _read(given, "must be a day (YYYY-MM-DD) or an ISO 8601 date-time")


def begin_of(moment: datetime | date, zone: ZoneInfo) -> datetime:
    """The first instant that it means. What no calendar reaches is the first or the last day that
    one does."""
    wall = moment if isinstance(moment, datetime) else datetime.combine(moment, time.min)
    try:
        return (wall if wall.tzinfo else instant_of(wall, zone, FIRST_PASS)).astimezone(UTC)
    except OverflowError:
        return _LAST if wall.year > 1 else _FIRST


def end_of(moment: datetime | date, zone: ZoneInfo) -> datetime:
    """The first instant after all that it means."""
    try:
        if isinstance(moment, datetime):
            return begin_of(moment, zone) + _SHOWN
        return begin_of(moment + timedelta(days=1), zone)
    except OverflowError:
        return _LAST


def _read(given: object, complaint: str) -> datetime | date:
    if isinstance(given, date):
        return given
    text = str(given).strip().upper()
    try:
        return (
            date.fromisoformat(text)
            if _DAY.fullmatch(text)
            else datetime.fromisoformat(_with_plus(text))
        )
    except ValueError:
        raise ValueError(complaint) from None


def _with_plus(text: str) -> str:
    """The zone's `+` reads as a space where it was not escaped in an address."""
    return re.sub(r" (\d{2}:?\d{2})$", r"+\1", text)


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
