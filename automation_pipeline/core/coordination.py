"""What processes need to agree on: who holds a piece of work, and who may call a provider when.

Each promise has two adapters, in the database (`storage`) and in Redis (`locks`); one contract test runs on both.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


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


@runtime_checkable
class AwaitedLeases(Protocol):
    """Leases that a task can ask for without a thread of its own."""

    async def acquire_soon(self, key: str, owner: str, ttl_seconds: float) -> Lease | None: ...

    async def release_soon(self, lease: Lease) -> bool:
        """It is given back even if the task is cancelled meanwhile."""
        ...


async def acquire(leases: Leases, key: str, owner: str, ttl_seconds: float) -> Lease | None:
    if isinstance(leases, AwaitedLeases):
        return await leases.acquire_soon(key, owner, ttl_seconds)
    return await asyncio.to_thread(leases.acquire, key, owner, ttl_seconds)


async def release(leases: Leases, lease: Lease) -> bool:
    if isinstance(leases, AwaitedLeases):
        return await leases.release_soon(lease)
    return await asyncio.to_thread(leases.release, lease)


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


@runtime_checkable
class AwaitedRateLimiter(Protocol):
    """One that a task can ask without a thread of its own."""

    async def reserve_soon(self, key: str, rate: Rate) -> float | None: ...


async def reserve(limiter: RateLimiter, key: str, rate: Rate) -> float | None:
    """However long the wait is."""
    if isinstance(limiter, AwaitedRateLimiter):
        return await limiter.reserve_soon(key, rate)
    return await asyncio.to_thread(limiter.reserve, key, rate)
