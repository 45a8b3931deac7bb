"""Go through the targets of a run, some at a time, for as long as the run is this worker's own and something is due."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from automation_pipeline.pricing.domain.failures import Failure
from automation_pipeline.pricing.domain.work import Settled, Terms, WorkTarget
from automation_pipeline.pricing.ports import Desk
from automation_pipeline.pricing.stages.apply_chunk import apply_chunk
from automation_pipeline.pricing.store.holds import LostHoldError

# How often it is seen whether the work is still wanted, and whether what waits is due.
LOOK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class Wait:
    """Until something is due; None: nobody knows, for somebody has paused the shop."""

    seconds: float | None


class Work(Protocol):
    """What is done with the targets, each part in a transaction of its own under the hold: LostHoldError, when the run
    is somebody else's."""

    def begin(self) -> None:
        """What a lost worker has left is put in order."""
        ...

    def terms(self) -> Terms:
        """Of the targets that are taken next: people change their minds."""
        ...

    def keep(self) -> bool:
        """Keep the hold; whether the targets that were taken last are still wanted. Asked before each write."""
        ...

    def take(self) -> Sequence[WorkTarget] | Wait:
        """Those that are due. None at all: it is over, and the hold is given back."""
        ...

    def settle(self, settled: Sequence[Settled]) -> None: ...

    def give_up(self, critical: Failure) -> None:
        """The shop would refuse everything."""
        ...

    def leave(self, seconds: float | None) -> None:
        """Give the hold back, and say when somebody is to come back for the rest."""
        ...


async def work_through(work: Work, *, desk: Desk) -> bool:
    """Whether it is over; if not, what is left is due too late to stay for it."""
    worker = _Worker(work, desk)
    working, beating = asyncio.ensure_future(worker.work()), asyncio.ensure_future(worker.beat())
    try:
        await asyncio.wait({working, beating}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await beating
        return await working
    finally:
        for task in (working, beating):
            task.cancel()
        await asyncio.gather(working, beating, return_exceptions=True)


class _Worker:
    def __init__(self, work: Work, desk: Desk) -> None:
        self._work, self._desk, self._knobs = work, desk, desk.front.knobs

    async def beat(self) -> None:
        """Until the hold is gone: given back a moment ago, or lost, which the work finds out before its next write."""
        while True:
            with suppress(LostHoldError):
                await asyncio.to_thread(self._work.keep)
            await asyncio.sleep(min(self._knobs.lease_seconds / 4, LOOK_AGAIN_SECONDS))

    async def work(self) -> bool:
        await asyncio.to_thread(self._work.begin)
        waited = 0.0
        while True:
            step = await asyncio.to_thread(self._work.take)
            if isinstance(step, Wait):
                if step.seconds is None or waited + step.seconds > self._knobs.longest_pause_seconds:
                    await asyncio.to_thread(self._work.leave, step.seconds)
                    return False
                pause = min(step.seconds, LOOK_AGAIN_SECONDS)
                waited += pause
                await asyncio.sleep(pause)
            elif not step:
                return True
            else:
                waited = 0.0
                if not await self._goes_on_after(step, await asyncio.to_thread(self._work.terms)):
                    return False

    async def _goes_on_after(self, targets: Sequence[WorkTarget], terms: Terms) -> bool:
        async def write_down(settled: Sequence[Settled]) -> None:
            await asyncio.to_thread(self._work.settle, settled)

        async def is_wanted() -> bool:
            return await asyncio.to_thread(self._work.keep)

        halt = await apply_chunk(targets, terms, desk=self._desk, settle=write_down, is_wanted=is_wanted)
        if halt is None:
            return True
        if halt.critical is None:
            await asyncio.to_thread(self._work.leave, halt.resting_seconds)
            return False
        await asyncio.to_thread(self._work.give_up, halt.critical)
        return True
