"""Claims, semaphores and rate limits for all processes, with failover from Redis to the database."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import uniform
from typing import Protocol, runtime_checkable

from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.logs import log
from automation_pipeline.core.metrics import Meter


@dataclass(frozen=True)
class Claim:
    """The right of `owner` to work on `key`. Each later holder has a higher token, which reveals
    stale writers."""

    key: str
    owner: str
    token: int


@dataclass(frozen=True)
class ClaimHolder:
    owner: str
    token: int
    seconds_left: float


class Claims(Protocol):
    def take(self, key: str, owner: str, ttl_seconds: float) -> Claim | None:
        """None while the key is held, even by this owner. The claim expires after the TTL."""

    def extend(self, claim: Claim, ttl_seconds: float) -> bool:
        """Extend the claim for another TTL from now. False if it has expired or has another holder: the
        caller must stop."""
        ...

    def release(self, claim: Claim) -> bool:
        """False if the claim has expired or has another holder."""
        ...

    def holder(self, key: str) -> ClaimHolder | None: ...


class Permit(Protocol):
    async def extend(self, ttl_seconds: float) -> None: ...

    async def release(self) -> None: ...


class Permits(Protocol):
    async def acquire(self, name: str, limit: int, owner: str, ttl_seconds: float) -> Permit | None:
        """None while `limit` permits of this name are held. Costs one statement for any limit."""


@dataclass(frozen=True)
class Rate:
    """At most `limit` evenly spaced starts in any `period_seconds`. After a pause, `burst` of them
    may be immediate."""

    limit: int
    period_seconds: float
    burst: int = 1

    def __post_init__(self) -> None:
        if self.limit < 1 or self.period_seconds <= 0 or not 1 <= self.burst <= self.limit:
            raise ValueError(f"Not a rate: {self}")

    @property
    def interval_seconds(self) -> float:
        # The spacing is wider, so that a burst and the starts of one period stay within the limit.
        return self.period_seconds / (self.limit - self.burst + 1)


class RateLimiter(Protocol):
    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        """Reserve one start and return the seconds until then. None, without a reservation, if they
        exceed the maximum."""


@runtime_checkable
class AwaitedRateLimiter(Protocol):
    async def reserve_soon(self, key: str, rate: Rate) -> float | None: ...


async def reserve(limiter: RateLimiter, key: str, rate: Rate) -> float | None:
    if isinstance(limiter, AwaitedRateLimiter):
        return await limiter.reserve_soon(key, rate)
    return await asyncio.to_thread(limiter.reserve, key, rate)


async def wait_for_rate(limiter: RateLimiter, key: str, rate: Rate) -> None:
    await asyncio.sleep(await reserve(limiter, key, rate) or 0.0)


def rate_per_minute(limit: int) -> Rate:
    """A call reaches the provider a little after its start. A margin of one per cent keeps every
    minute within the limit."""
    return Rate(limit, 60.6)


LONGEST_PAUSE_SECONDS = 1.0
# How long the tasks of one process hand a permit over before other processes can get it.
HAND_OVER_SECONDS = 1.0

_log = log(__name__)


@dataclass(frozen=True)
class _HeldPermit:
    permit: Permit
    acquired_at: float


@dataclass
class _Queue:
    """The tasks of one event loop. At most `limit` of them request or hold a permit, and they hand
    permits over to waiting tasks."""

    gate: asyncio.Semaphore
    waiting: int = 0
    handed_over: list[_HeldPermit] = field(default_factory=list[_HeldPermit])


@dataclass(frozen=True)
class Semaphore:
    permits: Permits
    name: str
    limit: int
    owner: str
    ttl_seconds: float = 30.0
    poll_seconds: float = 0.1
    _queues: dict[asyncio.AbstractEventLoop, _Queue] = field(
        default_factory=dict[asyncio.AbstractEventLoop, _Queue],
        init=False,
        repr=False,
        compare=False,
    )

    @asynccontextmanager
    async def acquire(self) -> AsyncGenerator[None]:
        """Waits for a permit and holds it while the body runs. Each round of waiting costs one
        statement."""
        queue = self._queue()
        await self._enter(queue)
        try:
            held = queue.handed_over.pop() if queue.handed_over else await self._wait()
            extending = asyncio.create_task(self._extend_regularly(held))
            try:
                yield
            except BaseException:  # a cancellation must release the permit too
                extending.cancel()
                await self._release(held)
                raise
            extending.cancel()
            await self._leave(held, queue)
        finally:
            queue.gate.release()

    def _queue(self) -> _Queue:
        loop = asyncio.get_running_loop()
        if loop not in self._queues:
            for closed in [known for known in list(self._queues) if known.is_closed()]:
                self._queues.pop(closed, None)
            self._queues[loop] = _Queue(asyncio.Semaphore(self.limit))
        return self._queues[loop]

    async def _enter(self, queue: _Queue) -> None:
        queue.waiting += 1
        try:
            await queue.gate.acquire()
        except asyncio.CancelledError:
            # More permits may be handed over than tasks still wait.
            extra = queue.handed_over[queue.waiting - 1 :]
            del queue.handed_over[queue.waiting - 1 :]
            for held in extra:
                await self._release(held)
            raise
        finally:
            queue.waiting -= 1

    async def _leave(self, held: _HeldPermit, queue: _Queue) -> None:
        """Hand the permit over to a waiting task, unless this process has kept it for long enough."""
        hand_over_until = held.acquired_at + min(HAND_OVER_SECONDS, self.ttl_seconds / 8)
        is_awaited = queue.waiting > len(queue.handed_over)
        if is_awaited and asyncio.get_running_loop().time() < hand_over_until:
            queue.handed_over.append(held)
        else:
            await self._release(held)

    async def _wait(self) -> _HeldPermit:
        pause, now = self.poll_seconds, asyncio.get_running_loop().time
        while True:
            acquired_at = now()
            permit = await self.permits.acquire(self.name, self.limit, self.owner, self.ttl_seconds)
            if permit is not None:
                return _HeldPermit(permit, acquired_at)
            await asyncio.sleep(uniform(0.5, 1.5) * pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _extend_regularly(self, held: _HeldPermit) -> None:
        next_extension, now = held.acquired_at, asyncio.get_running_loop().time
        while True:
            next_extension += self.ttl_seconds / 4
            await asyncio.sleep(next_extension - now())
            try:
                await held.permit.extend(self.ttl_seconds)
            except AutomationError as error:
                _log.warning("A permit of %s could not be extended: %s", self.name, error)

    async def _release(self, held: _HeldPermit) -> None:
        try:
            await held.permit.release()
        except AutomationError as error:
            _log.warning("A permit of %s ends only with its time: %s", self.name, error)


@dataclass(frozen=True)
class CountedRateLimiter:
    """Counts waits. Keys are names of providers."""

    limiter: RateLimiter
    meter: Meter

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        return self._counted(
            key, self.limiter.reserve(key, rate, max_wait_seconds=max_wait_seconds)
        )

    async def reserve_soon(self, key: str, rate: Rate) -> float | None:
        return self._counted(key, await reserve(self.limiter, key, rate))

    def _counted(self, key: str, wait: float | None) -> float | None:
        if wait:
            self.meter.count("limiter_waits_total", provider=key)
            self.meter.count("limiter_wait_seconds_total", wait, provider=key)
        return wait


@dataclass
class Outage:
    """An outage of the first adapter, which is skipped until it ends."""

    retry_after_seconds: float = 15.0
    monotonic: Callable[[], float] = time.monotonic
    _ends_at: float = 0.0

    @property
    def is_active(self) -> bool:
        return self.monotonic() < self._ends_at

    def begin(self, error: AutomationError) -> None:
        _log.warning("Rate limits and permits are kept in the database for now: %s", error)
        self._ends_at = self.monotonic() + self.retry_after_seconds


@dataclass(frozen=True)
class FailoverRateLimiter:
    """Processes notice an outage one by one, so calls may reach twice the limit for a moment. The
    provider then refuses some of them."""

    first: RateLimiter
    second: RateLimiter
    outage: Outage = field(default_factory=Outage)

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        if not self.outage.is_active:
            try:
                return self.first.reserve(key, rate, max_wait_seconds=max_wait_seconds)
            except AutomationError as error:
                self.outage.begin(error)
        return self.second.reserve(key, rate, max_wait_seconds=max_wait_seconds)

    async def reserve_soon(self, key: str, rate: Rate) -> float | None:
        if not self.outage.is_active:
            try:
                return await reserve(self.first, key, rate)
            except AutomationError as error:
                self.outage.begin(error)
        return await reserve(self.second, key, rate)


@dataclass(frozen=True)
class FailoverPermits:
    """A permit belongs to the adapter that issued it. While both adapters have permits in use, up to
    twice the limit may be held."""

    first: Permits
    second: Permits
    outage: Outage = field(default_factory=Outage)

    async def acquire(self, name: str, limit: int, owner: str, ttl_seconds: float) -> Permit | None:
        if not self.outage.is_active:
            try:
                permit = await self.first.acquire(name, limit, owner, ttl_seconds)
            except AutomationError as error:
                self.outage.begin(error)
            else:
                return None if permit is None else _FirstPermit(permit, self.outage)
        return await self.second.acquire(name, limit, owner, ttl_seconds)


@dataclass(frozen=True)
class _FirstPermit:
    """Skips calls of the first adapter during an outage. The permit then expires."""

    permit: Permit
    outage: Outage

    async def extend(self, ttl_seconds: float) -> None:
        if not self.outage.is_active:
            await self._start_outage_on_failure(self.permit.extend(ttl_seconds))

    async def release(self) -> None:
        if not self.outage.is_active:
            await self._start_outage_on_failure(self.permit.release())

    async def _start_outage_on_failure(self, call: Awaitable[None]) -> None:
        try:
            await call
        except AutomationError as error:
            self.outage.begin(error)
