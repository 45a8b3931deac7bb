"""What single fields of schedules must be. Rules over several of them are in schedule_rules.py."""

import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, Field

from automation_pipeline.core.cron import Cron
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.wall_clock import zone

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
    tuple[Day, ...], Field(max_length=MOST_EXCLUDED), AfterValidator(_in_order), BeforeValidator(_none_is_empty)
]
# Any type of job says itself what its payload holds.
Payload = Annotated[dict[str, object], BeforeValidator(_object)]
