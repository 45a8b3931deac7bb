"""The due times of a schedule: its crons in a time zone, its execution window, dates and jitter."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from itertools import chain, count
from typing import Self
from zoneinfo import ZoneInfo

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.cron import Cron, latest_occurrence, occurrences_of
from automation_pipeline.core.scheduling.zones import FIRST_PASS, instant_of, wall_time, zone

# The calendar ends with the year 9999. Computations do not overflow before this instant.
_END = datetime(9990, 1, 1, tzinfo=UTC)
_DAY_MINUTES = 24 * 60
_INSTANT = timedelta(microseconds=1)
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)


class WindowPolicy(StrEnum):
    """What happens to an occurrence outside the execution window: CLAMP moves it to the next start
    of the window, FILTER drops it."""

    CLAMP = "CLAMP"
    FILTER = "FILTER"


@dataclass(frozen=True)
class ExecutionWindow:
    """The times of day at which a job may start. Both minutes are included. A window whose start is
    later than its end spans midnight."""

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

    @property
    def length(self) -> timedelta:
        return timedelta(minutes=self._minutes + 1)  # the last minute is included

    @property
    def _minutes(self) -> int:
        start, end = (at.hour * 60 + at.minute for at in (self.start, self.end))
        return (end - start) % _DAY_MINUTES

    def contains(self, at: time) -> bool:
        minute = at.replace(second=0, microsecond=0)
        if self.start < self.end:
            return self.start <= minute <= self.end
        return minute >= self.start or minute <= self.end

    def is_open(self, instant: datetime, zone: ZoneInfo) -> bool:
        """The wall clock decides, in both passes of an hour that it repeats."""
        return self.contains(wall_time(instant, zone).time())

    def clamp(self, instant: datetime, zone: ZoneInfo) -> datetime:
        """The instant itself if the window is open, otherwise the next start of the window."""
        if self.is_open(instant, zone):
            return instant
        minute = instant.replace(second=0, microsecond=0)
        # A start that the clock skips moves to the end of the gap, even if that is after the window.
        today = datetime.combine(wall_time(instant, zone).date(), self.start)
        # Starts the day before, because a gap that ends at midnight moves a start to the next date.
        starts = (instant_of(today + timedelta(days=day), zone, FIRST_PASS) for day in count(-1))
        return max(instant, next(start for start in starts if start >= minute))

    def allows_cutoff(self, minutes: int) -> bool:
        return minutes < self._minutes

    def shortened(self, cutoff_minutes: int) -> "ExecutionWindow":
        """The window without its last minutes. Raises InvalidInputError if nothing is left."""
        if not self.allows_cutoff(cutoff_minutes):
            raise InvalidInputError("The cutoff must be shorter than the execution window.")
        end = (self.end.hour * 60 + self.end.minute - cutoff_minutes) % _DAY_MINUTES
        return ExecutionWindow(self.start, time(end // 60, end % 60))


def _time_of_day(text: str) -> time:
    if not _TIME_OF_DAY.fullmatch(text):
        raise InvalidInputError(f"{text!r} is not a time of day; write it as HH:MM.")
    return time.fromisoformat(text)


@dataclass(frozen=True)
class Planned:
    """A due time. `scheduled_for` is an instant of the cron; `effective_for` is when the window and
    the jitter let it start. Occurrences that wait for the same start of the window are one due
    time, scheduled for the latest of them."""

    scheduled_for: datetime
    effective_for: datetime


@dataclass(frozen=True, kw_only=True)
class Timing:
    """`seed` fixes the jitter: a due time of a schedule always has the same delay."""

    crons: tuple[Cron, ...]
    zone: ZoneInfo
    seed: str = ""
    window: ExecutionWindow | None = None
    window_policy: WindowPolicy = WindowPolicy.CLAMP
    jitter_seconds: int = 0
    start_at: datetime | None = None
    end_at: datetime | None = None
    excluded_on: frozenset[date] = frozenset()

    def is_open(self, instant: datetime) -> bool:
        return self.window is None or self.window.is_open(instant, self.zone)

    def is_excluded(self, instant: datetime) -> bool:
        return wall_time(instant, self.zone).date() in self.excluded_on

    def exclusion_end(self, instant: datetime) -> datetime:
        """When the day of an excluded due time ends. With CLAMP, its window may close earlier; what is
        due after that starts with the next window."""
        at = wall_time(instant, self.zone)
        end = datetime.combine(at.date() + timedelta(days=1), time.min)
        if self.window is not None and self.window_policy is WindowPolicy.CLAMP:
            closes_at = datetime.combine(at.date(), self.window.end) + timedelta(minutes=1)
            end = min(end, closes_at) if at < closes_at else end
        return instant_of(end, self.zone, FIRST_PASS)

    def opens_at(self, instant: datetime) -> datetime:
        """When the window lets an occurrence start, before jitter."""
        if self.window is None or self.window_policy is WindowPolicy.FILTER:
            return instant
        return self.window.clamp(instant, self.zone)

    def delayed(
        self, scheduled_for: datetime, effective_for: datetime, before: datetime | None = None
    ) -> datetime:
        """`effective_for` plus the jitter, which keeps it before the next due time (`before`), inside
        the window, and outside of excluded days."""
        seconds = self.jitter_seconds + 1
        if before is not None:
            seconds = max(min(seconds, int((before - effective_for).total_seconds())), 1)
        digest = sha256(f"{self.seed}:{scheduled_for.timestamp():.0f}".encode()).digest()
        later = effective_for + timedelta(seconds=int.from_bytes(digest[:8]) % seconds)
        return later if self.is_open(later) and not self.is_excluded(later) else effective_for


@dataclass(frozen=True, kw_only=True)
class TimingFields:
    seed: str
    cron_expression: str
    timezone: str
    window_start: str | None = None
    window_end: str | None = None
    window_policy: str = WindowPolicy.CLAMP
    cutoff_minutes: int = 0
    jitter_seconds: int = 0
    start_at: datetime | None = None
    end_at: datetime | None = None
    excluded_on: tuple[str, ...] = ()


def read_timing(fields: TimingFields) -> Timing:
    """Raises InvalidInputError if the cron, the window or the time zone is not valid, or no longer
    valid."""
    window = ExecutionWindow.parse(fields.window_start, fields.window_end)
    return Timing(
        crons=(parse_cron(fields.cron_expression),),
        zone=zone(fields.timezone),
        seed=fields.seed,
        window=window and window.shortened(fields.cutoff_minutes),
        window_policy=WindowPolicy(fields.window_policy),
        jitter_seconds=fields.jitter_seconds,
        start_at=fields.start_at,
        end_at=fields.end_at,
        excluded_on=frozenset(map(date.fromisoformat, fields.excluded_on)),
    )


@lru_cache(maxsize=4096)  # thousands of schedules share a few hundred expressions
def parse_cron(text: str) -> Cron:
    return Cron.parse(text)


def is_never_due(timing: Timing) -> bool:
    window = timing.window
    if window is None or timing.window_policy is WindowPolicy.CLAMP:
        return False
    return not any(window.contains(at) for cron in timing.crons for at in cron.times())


def next_planned(timing: Timing, after: datetime) -> Planned | None:
    """The first due time strictly after `after`; None if the schedule is never due again."""
    return next(planned_after(timing, after), None)


def planned_after(
    timing: Timing, after: datetime, *, with_excluded: bool = False
) -> Iterator[Planned]:
    """The due times strictly after `after`, in order. `start_at` and `end_at` are included."""
    if timing.start_at is not None and timing.start_at > after:
        after = timing.start_at - _INSTANT
    while after < _END:
        due = undelayed_after(timing, after)
        if due is None or (timing.end_at is not None and due.scheduled_for > timing.end_at):
            return
        after = max(due.scheduled_for, due.effective_for)
        if not with_excluded and timing.is_excluded(due.effective_for):
            after = max(after, timing.exclusion_end(due.effective_for) - _INSTANT)
            continue
        if timing.jitter_seconds:
            following = undelayed_after(timing, after) if after < _END else None
            before = None if following is None else following.effective_for
            due = Planned(
                due.scheduled_for, timing.delayed(due.scheduled_for, due.effective_for, before)
            )
        yield due


def planned_from(
    timing: Timing, first: Planned, *, with_excluded: bool = False
) -> Iterator[Planned]:
    """`first`, which was planned before, and the due times after it."""
    after = timing.opens_at(first.scheduled_for)
    return chain([first], planned_after(timing, after, with_excluded=with_excluded))


def undelayed_after(timing: Timing, after: datetime) -> Planned | None:
    """The first due time strictly after `after`, without the dates and the jitter of the schedule;
    None if it is never due. Continue from either of its instants to get the next one."""
    if not timing.crons or is_never_due(timing):
        return None
    nominal = _first_after(timing.crons, timing.zone, after)
    if nominal is None or timing.window is None:
        return None if nominal is None else Planned(nominal, nominal)
    if timing.window_policy is WindowPolicy.CLAMP:
        effective = timing.window.clamp(nominal, timing.zone)
        latest = (latest_occurrence(cron, timing.zone, effective) for cron in timing.crons)
        return Planned(max(latest), effective)
    coming = occurrences_of(timing.crons, timing.zone, after)
    nominal = next(at for at in coming if timing.is_open(at))
    return Planned(nominal, nominal)


@lru_cache(maxsize=4096)  # schedules with the same times are due at the same instants
def _first_after(crons: tuple[Cron, ...], zone: ZoneInfo, after: datetime) -> datetime | None:
    return next(occurrences_of(crons, zone, after), None)


def next_opening(timing: Timing, instant: datetime) -> datetime | None:
    """The instant itself if the window is open and the day is not excluded, otherwise the next start
    of the window. None if the schedule ends before that."""
    window = timing.window
    opens_at = instant if window is None else window.clamp(instant, timing.zone)
    while timing.end_at is None or opens_at <= timing.end_at:
        if not timing.is_excluded(opens_at):
            return opens_at
        if window is None:
            return None
        opens_at = window.clamp(opens_at + window.length, timing.zone)
    return None
