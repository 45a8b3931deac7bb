"""The offsets of a zone from UTC over a stretch of time, for whoever reckons without a zone database."""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

_STEP = timedelta(days=1)


def offsets_between(first: datetime, last: datetime, zone: ZoneInfo) -> Sequence[tuple[datetime, int]]:
    """From when on, and how many seconds ahead of UTC; the first of them holds at `first`."""
    offsets = [(first, _offset(first, zone))]
    day = first
    while day < last:
        following = min(day + _STEP, last)
        if _offset(following, zone) != offsets[-1][1]:
            change = _change(day, following, zone)
            offsets.append((change, _offset(following, zone)))
        day = following
    return offsets


def _change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first whole second after `before`, itself in whole seconds, at which the clocks are already changed."""
    start, changed = before.replace(microsecond=0), _offset(after, zone)

    def is_changed(seconds: int) -> bool:
        return _offset(start + timedelta(seconds=seconds), zone) == changed

    seconds = range(int((after - start).total_seconds()) + 1)
    return start + timedelta(seconds=bisect_left(seconds, x=True, key=is_changed))


def _offset(instant: datetime, zone: ZoneInfo) -> int:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None  # noqa: S101  an aware instant has one
    return round(offset.total_seconds())
