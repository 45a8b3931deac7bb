"""The coming occurrences of a schedule, in its own time zone."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from automation_pipeline.automation.domain.schedule import Schedule, ScheduleFields, crons_of
from automation_pipeline.core.schedule_times import occurrences_of
from automation_pipeline.core.wall_clock import zone

FIRST_YEAR, LAST_YEAR = 1970, 2999
SCHEDULER_LOOKS_EVERY = timedelta(minutes=1)


def occurrences_after(schedule: ScheduleFields, after: datetime) -> Iterator[datetime]:
    """Strictly after that, until the calendar ends; none for a schedule that is started by hand only."""
    return occurrences_of(crons_of(schedule), zone(schedule.timezone), after)


def beginning(given: datetime) -> datetime:
    """From where somebody wants to see occurrences: without a zone it is UTC. ValueError for distant years."""
    if not FIRST_YEAR <= given.year <= LAST_YEAR:
        raise ValueError(f"must lie between the years {FIRST_YEAR} and {LAST_YEAR}")
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def next_due(schedule: Schedule, now: datetime) -> datetime | None:
    """When it is next run by itself: all up to `skip_due_at` are left out. None for one paused or MANUAL."""
    return _first_after(schedule, now, schedule.skip_due_at)


def next_to_skip(schedule: Schedule, now: datetime) -> datetime | None:
    """The first occurrence that is neither decided upon nor left out already. It may have come a moment ago: then it
    waits for the scheduler to look, or for its jitter."""
    waiting_since = now - timedelta(seconds=schedule.jitter_seconds) - SCHEDULER_LOOKS_EVERY
    return _first_after(schedule, waiting_since, schedule.last_due_at, schedule.skip_due_at)


def _first_after(schedule: Schedule, *instants: datetime | None) -> datetime | None:
    if not schedule.is_active:
        return None
    return next(occurrences_after(schedule, max(filter(None, instants))), None)
