"""Time zones: conversion between wall-clock times and instants, also around clock changes."""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from automation_pipeline.core.errors import InvalidInputError

FIRST_PASS, SECOND_PASS = 0, 1
# Files of the zone database that name the zone of this machine, or no zone.
_NOT_ZONES = frozenset({"Factory", "localtime", "posixrules"})


# Listing the zone database is slow.
_known_names = cache(lambda: available_timezones() - _NOT_ZONES)


def zone(name: str) -> ZoneInfo:
    try:
        if name in _known_names():
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # it was removed from the zone database
        pass
    raise InvalidInputError(f"{name!r} is not a known time zone.")


def wall_time(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def overlap(wall: datetime, zone: ZoneInfo) -> timedelta:
    """How far apart the two passes over a wall time are: zero if it occurs once, negative if the
    clock skips it."""
    return _utc(wall, zone, SECOND_PASS) - _utc(wall, zone, FIRST_PASS)


def instant_of(wall: datetime, zone: ZoneInfo, fold: int) -> datetime:
    """The instant of a wall time in the given pass. If the clock skips it: the first instant after
    the gap."""
    if overlap(wall, zone) >= timedelta(0):
        return _utc(wall, zone, fold)
    # In a gap Python gives the first pass the old offset, which is after the change, and the second
    # the new offset, which is before it.
    return _change(_utc(wall, zone, SECOND_PASS), _utc(wall, zone, FIRST_PASS), zone)


def _utc(wall: datetime, zone: ZoneInfo, fold: int) -> datetime:
    return wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)


_STEP = timedelta(days=1)


def offsets_between(
    first: datetime, last: datetime, zone: ZoneInfo
) -> Sequence[tuple[datetime, int]]:
    """Pairs of an instant and the seconds ahead of UTC from then on. The first pair is for
    `first`."""
    offsets = [(first, _offset(first, zone))]
    day = first
    while day < last:
        following = min(day + _STEP, last)
        if _offset(following, zone) != offsets[-1][1]:
            change = _change(day.replace(microsecond=0), following, zone)
            offsets.append((change, _offset(following, zone)))
        day = following
    return offsets


def _change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first whole second after `before` with the offset of `after`."""
    changed = _offset(after, zone)

    def is_changed(seconds: int) -> bool:
        return _offset(before + timedelta(seconds=seconds), zone) == changed

    seconds = range(int((after - before).total_seconds()) + 1)
    return before + timedelta(seconds=bisect_left(seconds, x=True, key=is_changed))


def _offset(instant: datetime, zone: ZoneInfo) -> int:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None  # noqa: S101  an aware instant has one
    return round(offset.total_seconds())
