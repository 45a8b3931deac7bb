"""How instants are written for people and other systems."""

from datetime import UTC, datetime


def iso(instant: datetime) -> str:
    """ISO-8601 in UTC, to the millisecond."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
