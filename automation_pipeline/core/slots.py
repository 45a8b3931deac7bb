"""A bounded number of places across processes, made of leases: for work that must not crowd a provider."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import sample, uniform

from automation_pipeline.core.coordination import Lease, Leases, acquire, release
from automation_pipeline.core.errors import AutomationError, TransientError
from automation_pipeline.core.logs import log

LONGEST_PAUSE_SECONDS = 1.0
# How long a place may go from hand to hand in one process before all processes can have it.
OURS_SECONDS = 1.0

_log = log(__name__)


@dataclass(frozen=True)
class _Held:
    """`asked_at`: when it was taken, by the loop's clock; it is held for a TTL from then on at least."""

    lease: Lease
    asked_at: float


@dataclass
class _Door:
    """In one event loop: who has got in, how many stand before it, and places that were left for them."""

    inside: asyncio.Semaphore
    waiting: int = 0
    left: list[_Held] = field(default_factory=list[_Held])


@dataclass(frozen=True)
class Slots:
    """`places` of the name may be held at once, each kept by a heartbeat; a dead holder's comes free by itself."""

    leases: Leases
    name: str
    places: int
    owner: str
    ttl_seconds: float = 30.0
    poll_seconds: float = 0.1
    _doors: dict[asyncio.AbstractEventLoop, _Door] = field(
        default_factory=dict[asyncio.AbstractEventLoop, _Door], init=False, repr=False, compare=False
    )

    @asynccontextmanager
    async def hold_one(self) -> AsyncGenerator[Lease]:
        """A place, for as long as it is worked in. Whoever loses it is cancelled, and told by a TransientError."""
        door = self._door()
        await self._enter(door)
        try:
            held = door.left.pop() if door.left else await self._wait()
            try:
                async with self._kept(held):
                    yield held.lease
            except BaseException:  # a cancellation too: it may have been lost
                await self._release(held.lease)
                raise
            await self._leave(held, door)
        finally:
            door.inside.release()

    async def _enter(self, door: _Door) -> None:
        door.waiting += 1
        try:
            await door.inside.acquire()
        except asyncio.CancelledError:
            if door.waiting == 1:  # what was left for us is for nobody now
                for held in [door.left.pop() for _ in list(door.left)]:
                    await self._release(held.lease)
            raise
        finally:
            door.waiting -= 1

    async def _leave(self, held: _Held, door: _Door) -> None:
        """For the next of this process, unless others have waited long enough."""
        ours_until = held.asked_at + min(OURS_SECONDS, self.ttl_seconds / 8)
        if door.waiting and asyncio.get_running_loop().time() < ours_until:
            door.left.append(held)
        else:
            await self._release(held.lease)

    def _door(self) -> _Door:
        """No more of this process ask for a place than there are. A semaphore belongs to one running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._doors:
            for closed in [known for known in list(self._doors) if known.is_closed()]:
                self._doors.pop(closed, None)
            self._doors[loop] = _Door(asyncio.Semaphore(self.places))
        return self._doors[loop]

    async def _wait(self) -> _Held:
        pause = self.poll_seconds
        while True:
            for place in sample(range(self.places), self.places):
                key, holder = f"{self.name}:{place}", f"{self.owner}/{id(asyncio.current_task())}"
                asked_at = asyncio.get_running_loop().time()
                lease = await acquire(self.leases, key, holder, self.ttl_seconds)
                if lease is not None:
                    return _Held(lease, asked_at)
            await asyncio.sleep(uniform(0.5, 1.5) * pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    @asynccontextmanager
    async def _kept(self, held: _Held) -> AsyncGenerator[None]:
        body = asyncio.timeout(None)
        beating = asyncio.create_task(self._beat(held.lease, held.asked_at, body))
        try:
            async with body:
                yield
        except TimeoutError:
            if not body.expired():
                raise
            raise TransientError(f"The place {held.lease.key} was lost: its lease ended.") from beating.exception()
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def _beat(self, lease: Lease, asked_at: float, body: asyncio.Timeout) -> None:
        try:
            with suppress(TimeoutError):
                await self._extend_until_lost(lease, asked_at)
        finally:  # a bug ends the body too; a body that has ended takes no new deadline, and needs none
            body.reschedule(asyncio.get_running_loop().time())

    async def _extend_until_lost(self, lease: Lease, asked_at: float) -> None:
        """Returns when told that the lease is lost; TimeoutError when nothing extended it for a whole TTL."""
        now = asyncio.get_running_loop().time
        async with asyncio.timeout_at(asked_at + self.ttl_seconds) as held:
            while True:
                await asyncio.sleep(asked_at + self.ttl_seconds / 4 - now())
                asked_at = now()
                try:
                    if not await asyncio.to_thread(self.leases.extend, lease, self.ttl_seconds):
                        return
                    held.reschedule(asked_at + self.ttl_seconds)
                except AutomationError as error:
                    _log.warning("The place %s could not be extended, which is tried again: %s", lease.key, error)

    async def _release(self, lease: Lease) -> None:
        try:
            await release(self.leases, lease)
        except AutomationError as error:
            _log.warning("The place %s comes free only when its lease ends: %s", lease.key, error)
