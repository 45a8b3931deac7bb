"""Days of sales: the CRM's dates and times, ranges of days, sales lists and their coverage."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.zones import FIRST_PASS, instant_of, zone

CRM_ZONE = zone("Europe/Paris")
FIRST_YEAR, LAST_YEAR = 1900, 2199  # far from where a database or another zone runs out of years

_DAY_FIRST = re.compile(r"(\d\d)/(\d\d)/(\d{4})( \d\d:\d\d(?::\d\d)?)?", re.ASCII)
_YEAR_FIRST = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_DAY_LENGTH = len("2026-02-03")


def crm_instant(text: str) -> datetime:
    """The instant in UTC. Without an offset the text is Paris time. ValueError: not a date with a
    time."""
    iso = _iso(text)
    if len(iso) == _DAY_LENGTH:
        raise ValueError("has no time of day")
    return _instant(_parsed(iso))


def crm_day(text: str) -> date:
    """The day in Paris, of a date with or without a time. ValueError: not a date."""
    told = _parsed(_iso(text))
    return told.date() if told.tzinfo is None else _instant(told).astimezone(CRM_ZONE).date()


def paris_day(instant: datetime) -> str:
    """DD/MM/YYYY on the wall clock of Paris."""
    return f"{instant.astimezone(CRM_ZONE):%d/%m/%Y}"


def paris_minute(instant: datetime) -> str:
    """HH:MM on the wall clock of Paris."""
    return f"{instant.astimezone(CRM_ZONE):%H:%M}"


def _iso(text: str) -> str:
    text = text.strip()
    if match := _DAY_FIRST.fullmatch(text):
        day, month, year, time = match.groups(default="")
        return f"{year}-{month}-{day}{time}"
    if _YEAR_FIRST.fullmatch(text):
        return text
    raise ValueError("is not written like a date of the CRM")


def _parsed(iso: str) -> datetime:
    try:
        told = datetime.fromisoformat(iso)
    except ValueError:
        raise ValueError("is a date or a time that does not exist") from None
    if not FIRST_YEAR <= told.year <= LAST_YEAR:
        raise ValueError(f"lies outside the years {FIRST_YEAR} to {LAST_YEAR}")
    return told


def _instant(told: datetime) -> datetime:
    return instant_of(told, CRM_ZONE, FIRST_PASS) if told.tzinfo is None else told.astimezone(UTC)


MAX_RANGE_DAYS = 366

Days = tuple[date, ...]

_WRITTEN = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def parse_day(text: str | None, complaint: str) -> date:
    """InvalidInputError with this complaint: not a day written as YYYY-MM-DD, or one that no fiche
    can be of."""
    try:
        day = date.fromisoformat(text) if text and _WRITTEN.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None or not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise InvalidInputError(complaint)
    return day


def requested_days(start: date, end: date, today: date) -> Days:
    """In order, none after today. InvalidInputError: the wrong way round, too long, or too long
    ago."""
    if start > end:
        raise InvalidInputError("startDate must be before or equal to endDate")
    last = min(end, today)
    if (last - start).days >= MAX_RANGE_DAYS:
        raise InvalidInputError(f"A range may have at most {MAX_RANGE_DAYS} days")
    if start.year < FIRST_YEAR:
        raise InvalidInputError(f"startDate must not be before the year {FIRST_YEAR}")
    return days_between(start, last)


def days_between(start: date, end: date) -> Days:
    return tuple(start + timedelta(days=after) for after in range((end - start).days + 1))


@dataclass(frozen=True)
class SalesDay:
    """The last sales list of a day that was understood. `listed` counts what the CRM sent, repeats
    included."""

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
    """The CRM gave no list for the day that could be used; what was known of it stays."""

    day: date
    error: str


@dataclass(frozen=True)
class DayFinding:
    """`grave` findings are errors, the others warnings."""

    check: str
    passed: bool
    says: str
    grave: bool = False


@dataclass(frozen=True)
class DayCoverage:
    """The three kinds add up to `fiches`."""

    fiches: int
    with_details: int
    not_found: int

    @property
    def without_details(self) -> int:
        return self.fiches - self.with_details - self.not_found

    @property
    def share(self) -> float:
        """Of the fiches that the CRM knows, those whose details are here; a day without any is
        complete."""
        known = self.fiches - self.not_found
        return self.with_details / known if known else 1.0

    @property
    def not_found_share(self) -> float:
        return self.not_found / self.fiches if self.fiches else 0.0
