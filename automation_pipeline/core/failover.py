"""Rate limits and permits from a second adapter while the first one does not answer."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from automation_pipeline.core.coordination import Permit, Permits, Rate, RateLimiter, reserve
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.logs import log

_log = log(__name__)


@dataclass
class Outage:
    """Whether the first adapter is left alone for a while, because it did not answer."""

    look_again_seconds: float = 15.0
    monotonic: Callable[[], float] = time.monotonic
    _until: float = 0.0

    @property
    def lasts(self) -> bool:
        return self.monotonic() < self._until

    def begin(self, error: AutomationError) -> None:
        _log.warning("Rate limits and permits are kept in the database for now: %s", error)
        self._until = self.monotonic() + self.look_again_seconds


@dataclass(frozen=True)
class FailoverRateLimiter:
    """Processes notice an outage one by one, so for that moment the cap may be met twice; the provider's own refusal
    is the safety net."""

    first: RateLimiter
    second: RateLimiter
    outage: Outage = field(default_factory=Outage)

    def reserve(self, key: str, rate: Rate, *, max_wait_seconds: float | None = None) -> float | None:
        if not self.outage.lasts:
            try:
                return self.first.reserve(key, rate, max_wait_seconds=max_wait_seconds)
            except AutomationError as error:
                self.outage.begin(error)
        return self.second.reserve(key, rate, max_wait_seconds=max_wait_seconds)

    async def reserve_soon(self, key: str, rate: Rate) -> float | None:
        if not self.outage.lasts:
            try:
                return await reserve(self.first, key, rate)
            except AutomationError as error:
                self.outage.begin(error)
        return await reserve(self.second, key, rate)


@dataclass(frozen=True)
class FailoverPermits:
    """A permit belongs to the adapter that gave it. While some are in each, up to twice the limit may be at work."""

    first: Permits
    second: Permits
    outage: Outage = field(default_factory=Outage)

    async def acquire(self, name: str, limit: int, owner: str, ttl_seconds: float) -> Permit | None:
        if not self.outage.lasts:
            try:
                permit = await self.first.acquire(name, limit, owner, ttl_seconds)
            except AutomationError as error:
                self.outage.begin(error)
            else:
                return None if permit is None else _FirstPermit(permit, self.outage)
        return await self.second.acquire(name, limit, owner, ttl_seconds)


@dataclass(frozen=True)
class _FirstPermit:
    """Its holder does not wait for the first adapter while that is out: the permit ends by itself."""

    permit: Permit
    outage: Outage

    async def extend(self, ttl_seconds: float) -> None:
        if not self.outage.lasts:
            await self._noted(self.permit.extend(ttl_seconds))

    async def release(self) -> None:
        if not self.outage.lasts:
            await self._noted(self.permit.release())

    async def _noted(self, call: Awaitable[None]) -> None:
        try:
            await call
        except AutomationError as error:
            self.outage.begin(error)
