"""The hours of the day within which a job may start, and the next occurrence of a cron under such a
window."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum
from itertools import count
from typing import Self
from zoneinfo import ZoneInfo

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.cron import (
    Cron,
    latest_occurrence,
    next_occurrence,
    occurrences,
)
from automation_pipeline.core.scheduling.zones import FIRST_PASS, instant_of, wall_time

_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)


class WindowPolicy(StrEnum):
    """What becomes of an occurrence outside the window: it waits for the next window start, or it
    is dropped."""

    CLAMP = "CLAMP"
    FILTER = "FILTER"


@dataclass(frozen=True)
class ExecutionWindow:
    """Both bounds are inside, to the whole minute; a start later than the end runs over
    midnight."""

    start: time
    end: time

    @classmethod
    def parse(cls, start: str | None, end: str | None) -> Self | None:
        if not start and not end:
            return None
        if not start or not end:
            raise InvalidInputError(
                "An execution window needs both its start and its end, or neither."
            )
        if start == end:
            raise InvalidInputError("The start and the end of an execution window must differ.")
        return cls(_time_of_day(start), _time_of_day(end))

    def contains(self, at: time) -> bool:
        minute = at.replace(second=0, microsecond=0)
        if self.start < self.end:
            return self.start <= minute <= self.end
        return minute >= self.start or minute <= self.end

    def is_open(self, instant: datetime, zone: ZoneInfo) -> bool:
        """Judged on the wall clock, so in an overlap hour both passes count."""
        return self.contains(wall_time(instant, zone).time())

    def clamp(self, instant: datetime, zone: ZoneInfo) -> datetime:
        """The instant itself if the window is open, else the next window start."""
        if self.is_open(instant, zone):
            return instant
        minute = instant.replace(second=0, microsecond=0)
        # A start that the clock skips moves after the gap, out of a window that lies wholly in it:
        # still a start.
        return max(instant, next(start for start in self._starts(instant, zone) if start >= minute))

    def _starts(self, around: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """One start a date, from the day before: a gap that ends at midnight moves a start to the
        next date."""
        today = datetime.combine(wall_time(around, zone).date(), self.start)
        return (instant_of(today + timedelta(days=day), zone, FIRST_PASS) for day in count(-1))


@dataclass(frozen=True)
class WindowedOccurrence:
    """`effective_for` is when the window lets it start, `scheduled_for` the latest occurrence it
    stands for."""

    scheduled_for: datetime
    effective_for: datetime


def next_fire(
    cron: Cron,
    zone: ZoneInfo,
    after: datetime,
    window: ExecutionWindow | None = None,
    policy: WindowPolicy = WindowPolicy.CLAMP,
) -> WindowedOccurrence | None:
    """The first occurrence strictly after `after` under the window; None when it never fires.

    The occurrences that wait for the same window start are one fire; go on from either of its two
    instants.
    """
    if never_fires(cron, window, policy):
        return None
    if window and policy is WindowPolicy.CLAMP:
        effective = window.clamp(next_occurrence(cron, zone, after), zone)
        return WindowedOccurrence(latest_occurrence(cron, zone, effective), effective)
    nominal = next(
        at for at in occurrences(cron, zone, after) if window is None or window.is_open(at, zone)
    )
    return WindowedOccurrence(nominal, nominal)


def never_fires(cron: Cron, window: ExecutionWindow | None, policy: WindowPolicy) -> bool:
    """Whether the window drops every occurrence, so that the schedule must be refused when it is
    saved."""
    return (
        policy is WindowPolicy.FILTER
        and window is not None
        and not any(map(window.contains, cron.times()))
    )


def _time_of_day(text: str) -> time:
    if not _TIME_OF_DAY.fullmatch(text):
        raise InvalidInputError(f"{text!r} is not a time of day; write it as HH:MM.")
    return time.fromisoformat(text)
