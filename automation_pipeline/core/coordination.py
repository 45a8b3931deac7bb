"""Claims, semaphores and rate limits across processes, with failover from Redis to the database."""

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
    """The right of `owner` to work on `key`. A later holder has a higher token, so that a stale
    writer is recognised."""

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
        """None while the key is held, also by this owner. The claim expires after the TTL."""

    def extend(self, claim: Claim, ttl_seconds: float) -> bool:
        """For another TTL from now. False when the claim has expired or passed on: stop working."""
        ...

    def release(self, claim: Claim) -> bool:
        """False when the claim had expired or passed on."""
        ...

    def holder(self, key: str) -> ClaimHolder | None: ...


class Permit(Protocol):
    async def extend(self, ttl_seconds: float) -> None: ...

    async def release(self) -> None: ...


class Permits(Protocol):
    async def acquire(self, name: str, limit: int, owner: str, ttl_seconds: float) -> Permit | None:
        """None while `limit` permits of this name are held. Costs one statement, however high the
        limit is."""


@dataclass(frozen=True)
class Rate:
    """At most `limit` starts in any `period_seconds`, evenly spaced; `burst` of them may go at once
    after a pause."""

    limit: int
    period_seconds: float
    burst: int = 1

    def __post_init__(self) -> None:
        if self.limit < 1 or self.period_seconds <= 0 or not 1 <= self.burst <= self.limit:
            raise ValueError(f"Not a rate: {self}")

    @property
    def interval_seconds(self) -> float:
        # A burst is paid for by wider spacing: burst + (period / interval) starts still fit the
        # limit.
        return self.period_seconds / (self.limit - self.burst + 1)


class RateLimiter(Protocol):
    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        """Seconds to wait before one start, now reserved. None, and nothing reserved, if that is
        too long."""


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
    """A call may reach the provider shortly after its start: a margin of one per cent keeps every
    minute within the limit."""
    return Rate(limit, 60.6)


LONGEST_PAUSE_SECONDS = 1.0
# How long a permit stays within one process before other processes can have it.
HAND_OVER_SECONDS = 1.0

_log = log(__name__)


@dataclass(frozen=True)
class _HeldPermit:
    permit: Permit
    acquired_at: float


@dataclass
class _Queue:
    """The tasks of one event loop. Only as many of them as there are permits ask for one, and they
    hand permits over."""

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
        """Waits for a permit and keeps it while the body runs. A round of waiting costs one
        statement."""
        queue = self._queue()
        await self._enter(queue)
        try:
            held = queue.handed_over.pop() if queue.handed_over else await self._wait()
            beating = asyncio.create_task(self._keep(held))
            try:
                yield
            except BaseException:  # a cancellation, too, gives the permit back
                beating.cancel()
                await self._release(held)
                raise
            beating.cancel()
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
            # The tasks that still wait may be fewer than the permits that were handed over.
            extra = queue.handed_over[queue.waiting - 1 :]
            del queue.handed_over[queue.waiting - 1 :]
            for held in extra:
                await self._release(held)
            raise
        finally:
            queue.waiting -= 1

    async def _leave(self, held: _HeldPermit, queue: _Queue) -> None:
        """Hand the permit to the next task of this process, unless other processes have waited long
        enough."""
        until = held.acquired_at + min(HAND_OVER_SECONDS, self.ttl_seconds / 8)
        is_wanted = queue.waiting > len(queue.handed_over)
        if is_wanted and asyncio.get_running_loop().time() < until:
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

    async def _keep(self, held: _HeldPermit) -> None:
        next_beat, now = held.acquired_at, asyncio.get_running_loop().time
        while True:
            next_beat += self.ttl_seconds / 4
            await asyncio.sleep(next_beat - now())
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
    """A key is the name of the provider, under which its calls are counted."""

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
    """Whether the first adapter is skipped for a while because it did not answer."""

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
    """Processes notice an outage one by one, so the cap may be reached twice for a moment; the
    provider's own refusal is the safety net."""

    first: RateLimiter
    second: RateLimiter
    outage: Outage = field(default_factory=Outage)

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
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
    """A permit belongs to the adapter that issued it. While both have issued some, up to twice the
    limit may be held."""

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
    """Its holder does not wait for the first adapter during an outage: the permit expires by
    itself."""

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
