"""What processes need to agree on: claims on work, permits of semaphores, and rates of calls to providers.

Claims are always in the database (`storage`). Permits and rates have a second adapter in Redis (`locks`), and one
contract test runs on both.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Claim:
    """The right of `owner` to work on `key`. A later holder has a higher token, so that a stale writer is known."""

    key: str
    owner: str
    token: int


@dataclass(frozen=True)
class Holder:
    """Who holds a key now, for operators."""

    owner: str
    token: int
    seconds_left: float


class Claims(Protocol):
    def take(self, key: str, owner: str, ttl_seconds: float) -> Claim | None:
        """None while the key is held, also by this owner. The claim ends by itself after the TTL."""
        ...

    def extend(self, claim: Claim, ttl_seconds: float) -> bool:
        """For another TTL from now. False when the claim has ended or passed on: stop working."""
        ...

    def release(self, claim: Claim) -> bool:
        """False when the claim had ended or passed on."""
        ...

    def holder(self, key: str) -> Holder | None: ...


class Permit(Protocol):
    """One of the places of a semaphore, for a TTL."""

    async def extend(self, ttl_seconds: float) -> None: ...

    async def release(self) -> None: ...


class Permits(Protocol):
    async def acquire(self, name: str, limit: int, owner: str, ttl_seconds: float) -> Permit | None:
        """None while `limit` permits of this name are held. Costs one statement, however high the limit is."""
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


@runtime_checkable
class AwaitedRateLimiter(Protocol):
    """One that a task can ask without a thread of its own."""

    async def reserve_soon(self, key: str, rate: Rate) -> float | None: ...


async def reserve(limiter: RateLimiter, key: str, rate: Rate) -> float | None:
    """However long the wait is."""
    if isinstance(limiter, AwaitedRateLimiter):
        return await limiter.reserve_soon(key, rate)
    return await asyncio.to_thread(limiter.reserve, key, rate)
