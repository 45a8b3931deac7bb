"""Until when an attempt waits for somebody to begin it."""

from datetime import datetime, timedelta

WAITS = timedelta(hours=24)
# Within that time a window opens again, whenever in the last one the attempt was made.
_NEXT_OPENING = timedelta(hours=24)


def expires_at(begins_at: datetime, *, has_window: bool, waits: timedelta = WAITS) -> datetime:
    """Counted from when it may begin. What missed its window may begin in the next one, and in no later one for ever:
    so a window adds to it once."""
    return begins_at + waits + (_NEXT_OPENING if has_window else timedelta(0))
