"""The CRM's wall clock is that of Paris; instants are UTC. How its texts become days and instants, and back.

Day first, always: 03/02/2026 is the third of February. An hour that comes twice is its first pass; one that the clock
skips is the first instant after the gap (`core.wall_clock`).
"""

import re
from datetime import UTC, date, datetime

from automation_pipeline.core.wall_clock import FIRST_PASS, instant_of, zone

CRM_ZONE = zone("Europe/Paris")
FIRST_YEAR, LAST_YEAR = 1900, 2199  # far from where a database or another zone runs out of years

_DAY_FIRST = re.compile(r"(\d\d)/(\d\d)/(\d{4})( \d\d:\d\d(?::\d\d)?)?", re.ASCII)
_YEAR_FIRST = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)
_DAY_LENGTH = len("2026-02-03")


def crm_instant(text: str) -> datetime:
    """The instant in UTC. Without an offset the text is Paris time. ValueError: not a date with a time."""
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
