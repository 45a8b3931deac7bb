"""Field types of organisations' schedules and jobs, each with the message for a wrong value."""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import ID_DIGITS, ID_SCHEMA, Id, Instant
from automation_pipeline.core.scheduling.cron import Cron
from automation_pipeline.core.scheduling.zones import zone

LONGEST_NAME = 200

_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt _].*)?", re.DOTALL)
_SUCH_AS = "such as 2026-05-04T02:00:00Z"


def _name(text: str) -> str:
    bare = text.strip()
    if not bare:
        raise ValueError("must not be empty")
    if len(bare) > LONGEST_NAME:
        raise ValueError(f"must have at most {LONGEST_NAME} characters")
    return bare


def _number_or_digits(given: object) -> object:
    is_number = isinstance(given, int) and not isinstance(given, bool)
    if not is_number and not (isinstance(given, str) and re.fullmatch(ID_DIGITS, given)):
        raise ValueError("must be a whole number, or its digits as a string")
    return given


def _written_out(given: object) -> object:
    """Pydantic takes bare numbers, and texts of them, for seconds or milliseconds since 1970."""
    if isinstance(given, datetime) or (isinstance(given, str) and _ISO.fullmatch(given)):
        return given
    raise ValueError(f"must be a date and time with its time zone, {_SUCH_AS}")


def _in_utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError(f"must say its time zone, {_SUCH_AS}")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the calendar") from None


Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
Name = Annotated[str, AfterValidator(_name)]
KnownId = Annotated[
    Id,
    Field(ge=1),
    BeforeValidator(_number_or_digits),
    WithJsonSchema(ID_SCHEMA, mode="validation"),
]
ZonedInstant = Annotated[Instant, AfterValidator(_in_utc), BeforeValidator(_written_out)]


LONGEST_CRON = 255
LONGEST_DESCRIPTION = 2000
MOST_EXCLUDED = 1000
DAY_MINUTES = 24 * 60

_TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _read_by(reader: Callable[[str], object]) -> Callable[[str], str]:
    """The text as it is, if it can be read."""

    def checked(text: str) -> str:
        try:
            reader(text)
        except InvalidInputError as error:
            raise ValueError(str(error)) from None
        return text

    return checked


def _time_of_day(text: str) -> str:
    if not _TIME_OF_DAY.fullmatch(text):
        raise ValueError("must be a time of day as HH:MM, between 00:00 and 23:59")
    return text


def _day(given: object) -> str:
    text = given.isoformat() if isinstance(given, date) else given
    if not isinstance(text, str) or not _DAY.fullmatch(text):
        raise ValueError("must be a day as YYYY-MM-DD")
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text} is not a day of the calendar") from None
    return text


def _none_is_empty(given: object) -> object:
    return () if given is None else given


def _in_order(days: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(days)))


def _object(given: object) -> object:
    if not isinstance(given, dict):
        raise ValueError("must be an object")  # noqa: TRY004  pydantic takes that for a fault of the field
    return cast("object", given)


CronText = Annotated[str, Field(max_length=LONGEST_CRON), AfterValidator(_read_by(Cron.parse))]
TimeZone = Annotated[str, Field(max_length=LONGEST_CRON), AfterValidator(_read_by(zone))]
TimeOfDay = Annotated[str, AfterValidator(_time_of_day)]
Day = Annotated[str, BeforeValidator(_day)]
Days = Annotated[
    tuple[Day, ...],
    Field(max_length=MOST_EXCLUDED),
    AfterValidator(_in_order),
    BeforeValidator(_none_is_empty),
]
# Any type of job says itself what its payload holds.
Payload = Annotated[dict[str, object], BeforeValidator(_object)]
