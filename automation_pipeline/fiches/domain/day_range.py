"""Days that somebody asks for, one or a range of them: none in the future, and not too many."""

import re
from datetime import date, timedelta

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.fiches.domain.times import FIRST_YEAR, LAST_YEAR

MOST_DAYS = 366

Days = tuple[date, ...]

_WRITTEN = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def read_day(text: str | None, complaint: str) -> date:
    """InvalidInputError with this complaint: not a day written as YYYY-MM-DD, or one that no fiche can be of."""
    try:
        day = date.fromisoformat(text) if text and _WRITTEN.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None or not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise InvalidInputError(complaint)
    return day


def days_asked(start: date, end: date, today: date) -> Days:
    """In order, none after today. InvalidInputError: the wrong way round, too long, or too long ago."""
    if start > end:
        raise InvalidInputError("startDate must be before or equal to endDate")
    last = min(end, today)
    if (last - start).days >= MOST_DAYS:
        raise InvalidInputError(f"A range may have at most {MOST_DAYS} days")
    if start.year < FIRST_YEAR:
        raise InvalidInputError(f"startDate must not be before the year {FIRST_YEAR}")
    return days_between(start, last)


def days_between(start: date, end: date) -> Days:
    return tuple(start + timedelta(days=after) for after in range((end - start).days + 1))
