"""A semaphore across processes: bounds how much goes on at the same time, so that no provider is crowded.

A permit is kept by a heartbeat, and that of a dead process ends by itself. A semaphore is no claim: who loses a permit
goes on, because the worst that can follow is a call that the provider refuses.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import uniform

from automation_pipeline.core.coordination import Permit, Permits
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.logs import log

LONGEST_PAUSE_SECONDS = 1.0
# For so long a permit goes from task to task within one process before other processes can have it.
HAND_OVER_SECONDS = 1.0

_log = log(__name__)


@dataclass(frozen=True)
class _Held:
    """`acquired_at` is by the loop's clock."""

    permit: Permit
    acquired_at: float


@dataclass
class _Queue:
    """The tasks of one event loop: no more of them ask for permits than there are, and they hand permits over."""

    gate: asyncio.Semaphore
    waiting: int = 0
    handed_over: list[_Held] = field(default_factory=list[_Held])


@dataclass(frozen=True)
class Semaphore:
    permits: Permits
    name: str
    limit: int
    owner: str
    ttl_seconds: float = 30.0
    poll_seconds: float = 0.1
    _queues: dict[asyncio.AbstractEventLoop, _Queue] = field(
        default_factory=dict[asyncio.AbstractEventLoop, _Queue], init=False, repr=False, compare=False
    )

    @asynccontextmanager
    async def acquire(self) -> AsyncGenerator[None]:
        """Waits for a permit and keeps it while the body runs. A round of waiting costs one statement."""
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
            if queue.waiting == 1:  # no task is left to take what was handed over
                for held in [queue.handed_over.pop() for _ in list(queue.handed_over)]:
                    await self._release(held)
            raise
        finally:
            queue.waiting -= 1

    async def _leave(self, held: _Held, queue: _Queue) -> None:
        """To the next task of this process, unless other processes have waited long enough."""
        until = held.acquired_at + min(HAND_OVER_SECONDS, self.ttl_seconds / 8)
        if queue.waiting and asyncio.get_running_loop().time() < until:
            queue.handed_over.append(held)
        else:
            await self._release(held)

    async def _wait(self) -> _Held:
        pause, now = self.poll_seconds, asyncio.get_running_loop().time
        while True:
            acquired_at = now()
            permit = await self.permits.acquire(self.name, self.limit, self.owner, self.ttl_seconds)
            if permit is not None:
                return _Held(permit, acquired_at)
            await asyncio.sleep(uniform(0.5, 1.5) * pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _keep(self, held: _Held) -> None:
        next_beat, now = held.acquired_at, asyncio.get_running_loop().time
        while True:
            next_beat += self.ttl_seconds / 4
            await asyncio.sleep(next_beat - now())
            try:
                await held.permit.extend(self.ttl_seconds)
            except AutomationError as error:
                _log.warning("A permit of %s could not be extended: %s", self.name, error)

    async def _release(self, held: _Held) -> None:
        try:
            await held.permit.release()
        except AutomationError as error:
            _log.warning("A permit of %s ends only with its time: %s", self.name, error)
