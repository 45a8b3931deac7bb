"""The instants at which a cron fires in a zone. Clock changes are in wall_clock.py, windows in execution_window.py."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from heapq import merge
from zoneinfo import ZoneInfo

from automation_pipeline.core.cron import Cron
from automation_pipeline.core.wall_clock import FIRST_PASS, SECOND_PASS, instant_of, overlap, wall_time


def occurrences(cron: Cron, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The instants (UTC) strictly after `after`, strictly increasing, until the calendar ends."""
    with suppress(OverflowError):
        yield from _after(cron, zone, after)


def _after(cron: Cron, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    wall = wall_time(after, zone)
    # Asked in the first pass of an overlap, the second pass goes over wall times that already lie behind.
    start = wall - max(overlap(wall, zone), timedelta(0))
    previous = after
    for instant in _instants(cron, zone, start):
        if instant > previous:
            yield instant
            previous = instant


def occurrences_of(crons: Iterable[Cron], zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The instants at which any of them fires, each once; none without a cron."""
    previous = after
    for instant in merge(*(occurrences(cron, zone, after) for cron in crons)):
        if instant > previous:
            yield instant
            previous = instant


def next_occurrence(cron: Cron, zone: ZoneInfo, after: datetime) -> datetime:
    return next(occurrences(cron, zone, after))


def latest_occurrence(cron: Cron, zone: ZoneInfo, until: datetime) -> datetime:
    """The last occurrence at or before `until`."""
    wall = wall_time(until.replace(second=0, microsecond=0), zone)
    # Asked in the second pass of an overlap, the first pass went over wall times that still lie ahead.
    start = wall + max(overlap(wall, zone), timedelta(0)) + timedelta(minutes=1)
    return next(instant for instant in _instants(cron, zone, start, backwards=True) if instant <= until)


def most_recent_due(cron: Cron, zone: ZoneInfo, now: datetime, window: timedelta) -> datetime | None:
    """The last occurrence between `window` ago and now, both minutes included."""
    latest = latest_occurrence(cron, zone, now)
    return latest if latest >= now.replace(second=0, microsecond=0) - window else None


def _instants(cron: Cron, zone: ZoneInfo, start: datetime, *, backwards: bool = False) -> Iterator[datetime]:
    """In order, possibly repeated: a fixed time comes in the second pass of an overlap, a wildcard hour in both."""
    passes = (FIRST_PASS, SECOND_PASS) if cron.wildcard_hour else (SECOND_PASS,)
    return merge(*(_one_pass(cron, zone, start, fold, backwards) for fold in passes), reverse=backwards)


def _one_pass(cron: Cron, zone: ZoneInfo, start: datetime, fold: int, backwards: bool) -> Iterator[datetime]:
    for wall in cron.walls(start, backwards=backwards):
        skipped_by_the_clock = overlap(wall, zone) < timedelta(0)
        if not (skipped_by_the_clock and cron.wildcard_hour):
            yield instant_of(wall, zone, fold)
