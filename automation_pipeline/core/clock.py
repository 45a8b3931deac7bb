"""The only source of the present, and the format of instants. Decisions take an instant; the edges
ask the clock."""

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The present instant, aware and in UTC."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


def iso(instant: datetime) -> str:
    """ISO-8601 in UTC, to the millisecond."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
