"""Instants as people read them: on the wall clock of a place, with UTC beside it."""

from datetime import UTC, datetime, tzinfo

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.wall_clock import zone


def wall(instant: datetime, timezone: str) -> str:
    return f"{instant.astimezone(_zone(timezone)):%a %d %b %Y %H:%M %Z}"


def second(instant: datetime | None) -> str | None:
    return None if instant is None else f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def wall_and_utc(instant: datetime, timezone: str) -> str:
    """UTC only once, where the place keeps it."""
    there = wall(instant, timezone)
    return there if there.endswith(" UTC") else f"{there} ({instant:%Y-%m-%d %H:%M} UTC)"


def _zone(timezone: str) -> tzinfo:
    """A zone may have gone from the zone database since it was stored."""
    try:
        return zone(timezone)
    except InvalidInputError:
        return UTC
