"""What processes need to agree on: who holds a piece of work, and who may call a provider when.

Each promise has two adapters, in the database (`storage`) and in Redis (`locks`); one contract test runs on both.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Lease:
    """A claim on `key` by `owner`. A later holder always has a higher token, so a stale writer can be told."""

    key: str
    owner: str
    token: int


@dataclass(frozen=True)
class Holder:
    """Who holds a key now, for operators."""

    owner: str
    token: int
    seconds_left: float


class Leases(Protocol):
    def acquire(self, key: str, owner: str, ttl_seconds: float) -> Lease | None:
        """The lease, or None while somebody (this owner included) holds the key. Ends by itself after the TTL."""
        ...

    def extend(self, lease: Lease, ttl_seconds: float) -> bool:
        """Hold for another TTL from now. False when the lease has ended or passed on: stop working."""
        ...

    def release(self, lease: Lease) -> bool:
        """Give the key back. False when it was no longer this lease's to give."""
        ...

    def holder(self, key: str) -> Holder | None:
        """Who holds the key, if anybody."""
        ...


@dataclass(frozen=True)
class Rate:
    """At most `limit` starts in any `period_seconds`, evenly spaced; `burst` of them may go at once after a pause."""

    limit: int
    period_seconds: float
    burst: int = 1

    def __post_init__(self) -> None:
        if self.limit < 1 or self.period_seconds <= 0 or not 1 <= self.burst <= self.limit:
            raise ValueError(f"Not a rate: {self}")

    @property
    def interval_seconds(self) -> float:
        # A burst is paid for by wider spacing: burst + (period / interval) starts still fit the limit.
        return self.period_seconds / (self.limit - self.burst + 1)


class RateLimiter(Protocol):
    def reserve(self, key: str, rate: Rate, *, max_wait_seconds: float | None = None) -> float | None:
        """Seconds to wait before one start, now reserved. None, and nothing reserved, if that is too long."""
        ...
