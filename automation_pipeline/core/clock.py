"""The clock, the text format of instants, and days of the calendar."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Protocol

from pydantic import AfterValidator, BeforeValidator, Field


class Clock(Protocol):
    def now(self) -> datetime:
        """The present instant, aware and in UTC."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


def iso(instant: datetime) -> str:
    """ISO-8601 in UTC, to the millisecond."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


MOST_DAYS = 1000
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def days_between(first: date, last: date) -> tuple[date, ...]:
    """All days from `first` to `last`, both included; none when `last` is earlier."""
    return tuple(first + timedelta(days=number) for number in range((last - first).days + 1))


def _day(given: object) -> str:
    text = given.isoformat() if isinstance(given, date) else given
    if not isinstance(text, str) or not _DAY.fullmatch(text):
        raise ValueError("must be a day as YYYY-MM-DD")
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text} is not a day of the calendar") from None
    return text


Days = Annotated[
    tuple[Annotated[str, BeforeValidator(_day)], ...],
    Field(max_length=MOST_DAYS),
    AfterValidator(lambda days: tuple(sorted(set(days)))),
    BeforeValidator(lambda given: () if given is None else given),
]
