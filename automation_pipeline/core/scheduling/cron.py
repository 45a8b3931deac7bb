"""Strict parsing of five-field cron expressions, the instants at which they fire in a zone, and
policies for overlapping work."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum
from heapq import merge
from itertools import product
from typing import Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.zones import (
    FIRST_PASS,
    SECOND_PASS,
    instant_of,
    overlap,
    wall_time,
)

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}

_ITEM = re.compile(
    r"(?:(?P<star>\*)|(?P<low>\d{1,4}|[A-Z]{3})(?:-(?P<high>\d{1,4}|[A-Z]{3}))?)(?:/(?P<step>\d{1,4}))?",
    re.ASCII,
)


class OverlapPolicy(StrEnum):
    """What a due time does while earlier work of the schedule is unfinished. SKIP: it does not run.
    BUFFER_ONE: one waits for the end, others do not run. BUFFER_ALL: all wait in line.
    CANCEL_OTHER: the earlier work is asked to stop. TERMINATE_OTHER: the earlier work is ended at
    once. ALLOW_ALL: both run side by side."""

    SKIP = "SKIP"
    BUFFER_ONE = "BUFFER_ONE"
    BUFFER_ALL = "BUFFER_ALL"
    CANCEL_OTHER = "CANCEL_OTHER"
    TERMINATE_OTHER = "TERMINATE_OTHER"
    ALLOW_ALL = "ALLOW_ALL"

    @property
    def is_serial(self) -> bool:
        return self is not OverlapPolicy.ALLOW_ALL

    @property
    def replaces_others(self) -> bool:
        return self in {OverlapPolicy.CANCEL_OTHER, OverlapPolicy.TERMINATE_OTHER}


@dataclass(frozen=True)
class _Field:
    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()

    def values(self, text: str) -> frozenset[int]:
        return frozenset(value for item in text.split(",") for value in self._item(item))

    def _item(self, item: str) -> range:
        match = _ITEM.fullmatch(item)
        if match is None:
            raise self._refusal(item)
        low, high, step = match["low"], match["high"], match["step"]
        first = self._number(low) if low else self.first
        open_ended = match["star"] or (step and not high)
        last = self.last if open_ended else self._number(high or low)
        stride = int(step or 1)
        if first > last or not 1 <= stride <= self.last - self.first + 1:
            raise self._refusal(item)
        return range(first, last + 1, stride)

    def _number(self, text: str) -> int:
        if text in self.names:
            return self.first + self.names.index(text)
        if text.isalpha() or not self.first <= int(text) <= self.last:
            raise self._refusal(text)
        return int(text)

    def _refusal(self, item: str) -> InvalidInputError:
        return InvalidInputError(f"{item!r} is not a valid {self.name} in a cron expression.")


_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY = _Field("day of month", 1, 31)
_MONTH = _Field(
    "month",
    1,
    12,
    ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_WEEKDAY = _Field("day of week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))


@dataclass(frozen=True)
class Cron:
    """Create it with `parse`. If day of month and day of week are both restricted, a day matches
    either of them.

    `wildcard_hour`: the hour field starts with `*`. Such a cron follows elapsed time over clock
    changes.
    """

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    wildcard_hour: bool
    _plain: str

    @classmethod
    def parse(cls, text: str) -> Self:
        fields = MACROS.get(text.strip().lower(), text).upper().split()
        if len(fields) != 5:
            raise InvalidInputError(
                f"A cron expression has five fields, or is one of {', '.join(MACROS)}; got {text!r}."
            )
        minute, hour, day, month, weekday = fields
        minutes, hours = _MINUTE.values(minute), _HOUR.values(hour)
        weekdays = frozenset(value % 7 for value in _WEEKDAY.values(weekday))
        days, months = _days(day), _listed(_MONTH.values(month), 12)
        plain = (
            f"{_listed(minutes, 60)} {_listed(hours, 24)} {days} {months} {_listed(weekdays, 7)}"
        )
        _refuse_if_it_never_fires(plain, text)
        return cls(text, minutes, hours, hour.startswith("*"), plain)

    def times(self) -> Iterator[time]:
        """The times of day at which the cron fires on a matching day."""
        return (
            time(hour, minute) for hour, minute in product(sorted(self.hours), sorted(self.minutes))
        )

    def wall_times(self, start: datetime, *, backwards: bool = False) -> Iterator[datetime]:
        """The naive wall-clock datetimes strictly after `start` in order, or strictly before it in
        reverse order."""
        return CronSim(self._plain, start, reverse=backwards)


def _days(text: str) -> str:
    items = text.split(",")
    numbers = [item for item in items if item != "L"]
    parts = [_listed(_DAY.values(",".join(numbers)), 31)] if numbers else []
    return "*" if "*" in parts else ",".join(parts + ["L"] * ("L" in items))


def _listed(values: frozenset[int], size: int) -> str:
    """The values as a list for CronSim, which treats every field that starts with a star as
    unrestricted: only a complete field becomes a star."""
    return "*" if len(values) == size else ",".join(map(str, sorted(values)))


def _refuse_if_it_never_fires(plain: str, text: str) -> None:
    try:
        next(CronSim(plain, datetime(2000, 1, 1)))  # noqa: DTZ001  a wall time has no zone
    except (CronSimError, StopIteration):
        raise InvalidInputError(
            f"The cron expression {text!r} never fires: none of its months has such a day."
        ) from None


def occurrences(cron: Cron, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The instants (UTC) strictly after `after`, in order, until the calendar ends."""
    with suppress(OverflowError):
        yield from _after(cron, zone, after)


def _after(cron: Cron, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    wall = wall_time(after, zone)
    # In the first pass of an overlap, the second pass still has earlier wall times.
    start = wall - max(overlap(wall, zone), timedelta(0))
    previous = after
    for instant in _instants(cron, zone, start):
        if instant > previous:
            yield instant
            previous = instant


def occurrences_of(crons: Iterable[Cron], zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The instants at which any of the crons fires, without duplicates."""
    previous = after
    for instant in merge(*(occurrences(cron, zone, after) for cron in crons)):
        if instant > previous:
            yield instant
            previous = instant


def latest_occurrence(cron: Cron, zone: ZoneInfo, until: datetime) -> datetime:
    wall = wall_time(until.replace(second=0, microsecond=0), zone)
    # In the second pass of an overlap, the first pass also had later wall times.
    start = wall + max(overlap(wall, zone), timedelta(0)) + timedelta(minutes=1)
    return next(
        instant for instant in _instants(cron, zone, start, backwards=True) if instant <= until
    )


def _instants(
    cron: Cron, zone: ZoneInfo, start: datetime, *, backwards: bool = False
) -> Iterator[datetime]:
    """The instants in order, possibly with duplicates. In an overlap a fixed time fires in the second
    pass, and a wildcard hour in both."""
    passes = (FIRST_PASS, SECOND_PASS) if cron.wildcard_hour else (SECOND_PASS,)
    return merge(
        *(_one_pass(cron, zone, start, fold, backwards) for fold in passes), reverse=backwards
    )


def _one_pass(
    cron: Cron, zone: ZoneInfo, start: datetime, fold: int, backwards: bool
) -> Iterator[datetime]:
    for wall in cron.wall_times(start, backwards=backwards):
        skipped_by_the_clock = overlap(wall, zone) < timedelta(0)
        if not (skipped_by_the_clock and cron.wildcard_hour):
            yield instant_of(wall, zone, fold)
