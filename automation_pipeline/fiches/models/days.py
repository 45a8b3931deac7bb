"""Values of sales days: the CRM's dates and times, ranges of days, sales lists, and checks of a day."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime

from automation_pipeline.core.clock import days_between
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.zones import FIRST_PASS, instant_of, zone

CRM_ZONE = zone("Europe/Paris")
# All databases and time zone conversions support these years.
FIRST_YEAR, LAST_YEAR = 1900, 2199

_DAY_FIRST = re.compile(r"(\d\d)/(\d\d)/(\d{4})( \d\d:\d\d(?::\d\d)?)?", re.ASCII)
_YEAR_FIRST = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)


def crm_instant(text: str) -> datetime:
    """Parse a date with a time, and convert it to UTC. A text without an offset is Paris time. Raises ValueError."""
    iso = _iso(text)
    if len(iso) == len("2026-02-03"):
        raise ValueError("has no time of day")
    return _instant(_parse(iso))


def crm_day(text: str) -> date:
    """Parse a date with or without a time, and return the day in Paris. Raises ValueError."""
    parsed = _parse(_iso(text))
    return parsed.date() if parsed.tzinfo is None else _instant(parsed).astimezone(CRM_ZONE).date()


def paris_day(instant: datetime) -> str:
    """Format the day in Paris as DD/MM/YYYY."""
    return f"{instant.astimezone(CRM_ZONE):%d/%m/%Y}"


def paris_minute(instant: datetime) -> str:
    """Format the time in Paris as HH:MM."""
    return f"{instant.astimezone(CRM_ZONE):%H:%M}"


def _iso(text: str) -> str:
    text = text.strip()
    if match := _DAY_FIRST.fullmatch(text):
        day, month, year, time = match.groups(default="")
        return f"{year}-{month}-{day}{time}"
    if _YEAR_FIRST.fullmatch(text):
        return text
    raise ValueError("is not in the CRM's date format")


def _parse(iso: str) -> datetime:
    try:
        parsed = datetime.fromisoformat(iso)
    except ValueError:
        raise ValueError("is a date or a time that does not exist") from None
    if not FIRST_YEAR <= parsed.year <= LAST_YEAR:
        raise ValueError(f"is outside the years {FIRST_YEAR} to {LAST_YEAR}")
    return parsed


def _instant(at: datetime) -> datetime:
    return instant_of(at, CRM_ZONE, FIRST_PASS) if at.tzinfo is None else at.astimezone(UTC)


MAX_RANGE_DAYS = 366

Days = tuple[date, ...]


def parse_day(text: str | None, complaint: str) -> date:
    """Parse YYYY-MM-DD. Raises InvalidInputError with this complaint, also if the year is out of range."""
    try:
        day = (
            date.fromisoformat(text)
            if text and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text)
            else None
        )
    except ValueError:
        day = None
    if day is None or not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise InvalidInputError(complaint)
    return day


def requested_days(start: date, end: date, today: date) -> Days:
    """Return the days of the range up to today, in order.

    Raises InvalidInputError if the range is reversed, too long, or begins too long ago.
    """
    if start > end:
        raise InvalidInputError("startDate must be before or equal to endDate")
    last = min(end, today)
    if (last - start).days >= MAX_RANGE_DAYS:
        raise InvalidInputError(f"A range may have at most {MAX_RANGE_DAYS} days")
    if start.year < FIRST_YEAR:
        raise InvalidInputError(f"startDate must not be before the year {FIRST_YEAR}")
    return days_between(start, last)


@dataclass(frozen=True)
class SalesDay:
    """The counts of the last valid sales list of a day. `listed` includes duplicates."""

    day: date
    revalidated_at: datetime
    listed: int
    duplicates: int
    new: int
    changed: int
    missing_cle: int
    without_recordings: int

    @property
    def fiches(self) -> int:
        return self.listed - self.duplicates


@dataclass(frozen=True)
class DayFailed:
    """The CRM returned no usable list for the day. A stored list stays."""

    day: date
    error: str


@dataclass(frozen=True)
class DayFinding:
    """The result of one check of a day. A failed `grave` check is an error, any other a warning."""

    check: str
    passed: bool
    message: str
    grave: bool = False


@dataclass(frozen=True)
class DayCoverage:
    """The number of fiches of a day: all of them, those with details, and those that the CRM does not know."""

    fiches: int
    with_details: int
    not_found: int

    @property
    def without_details(self) -> int:
        return self.fiches - self.with_details - self.not_found

    @property
    def share(self) -> float:
        """The share of fiches with details among those that the CRM knows; 1 if it knows none."""
        known = self.fiches - self.not_found
        return self.with_details / known if known else 1.0

    @property
    def not_found_share(self) -> float:
        return self.not_found / self.fiches if self.fiches else 0.0
