"""Work on waiting recordings, the most urgent of all first, until the given runs are over.

Every process takes from the same queue: one that waits for a low fiche transcribes the high ones of others meanwhile.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

from automation_pipeline.core.coordination import Rate, reserve
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.tasks import together
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.transcription.ports import Provider
from automation_pipeline.transcription.stages.transcribe_recording import transcribe_recording
from automation_pipeline.transcription.store.runs import still_running, touch_runs
from automation_pipeline.transcription.store.tasks import Claim, claim_next, extend_claims, runs_worked_on

LIMIT = "speech-to-text"
LOOK_AGAIN_SECONDS = 0.25
# A call may reach the provider a little after its turn: a hundredth to spare keeps any minute within the cap.
MINUTE = 60.6
# Recordings that are taken before it is their turn, so that they are downloaded by then: two, or as many as the
# provider takes in that time. What becomes urgent meanwhile is overtaken by no more than these, in each process.
AHEAD, AHEAD_SECONDS = 2, 2.0

Result = TypeVar("Result")


async def transcribe_waiting(
    run_ids: Sequence[str],
    *,
    database: Database,
    provider: Provider,
    owner: str,
) -> None:
    """`owner` says who works; each call adds a name of its own, so that a retry never passes for what failed."""
    desk = _Desk(tuple(run_ids), database, provider, f"{owner}/{uuid.uuid4().hex[:8]}")
    async with together() as beside:
        beating = beside.create_task(desk.beat())
        async with together() as group:
            await desk.work_until_over(group)
        beating.cancel()


class _Desk:
    """One caller's place: what it works for, and how it takes its turns."""

    def __init__(self, run_ids: Sequence[str], database: Database, provider: Provider, owner: str) -> None:
        self._run_ids, self._database, self._provider, self._owner = run_ids, database, provider, owner
        self._places = asyncio.Semaphore(provider.speech.at_once)
        self._ahead = asyncio.Semaphore(max(AHEAD, round(AHEAD_SECONDS * provider.knobs.per_minute / MINUTE)))
        self._rate = Rate(provider.knobs.per_minute, MINUTE)

    async def work_until_over(self, group: asyncio.TaskGroup) -> None:
        """Helps with what is most urgent, but not for longer than its own runs last."""
        while True:
            free = await self._take_places()
            claims = await self._patiently(partial(self._claim, free))
            self._give_places_back(free - len(claims or ()))
            if claims is None:
                return
            for claim in claims:
                group.create_task(self._work(claim))
            if not claims:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _take_places(self) -> int:
        """All that are free, one at least."""
        taken = 0
        while not taken or not (self._places.locked() or self._ahead.locked()):
            await self._places.acquire()
            await self._ahead.acquire()
            taken += 1
        return taken

    def _give_places_back(self, number: int) -> None:
        for _ in range(number):
            self._places.release()
            self._ahead.release()

    async def beat(self) -> None:
        while True:
            await self._patiently(self._keep_claims)
            await asyncio.sleep(self._provider.knobs.lease_seconds / 4)

    async def _work(self, claim: Claim) -> None:
        before_its_turn = ExitStack()
        before_its_turn.callback(self._ahead.release)

        async def turn() -> None:
            await asyncio.sleep(await reserve(self._provider.limiter, LIMIT, self._rate) or 0.0)
            before_its_turn.close()

        with before_its_turn:
            await transcribe_recording(claim, turn=turn, database=self._database, provider=self._provider)
        self._places.release()

    async def _patiently(self, ask: Callable[[Session], Result]) -> Result:
        """A database that is away for a moment, shorter than our leases, does not end the calls in flight."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._provider.knobs.lease_seconds
        while True:
            try:
                return await self._database.write(ask)
            except TransientError:
                if loop.time() > until:
                    raise
                await asyncio.sleep(LOOK_AGAIN_SECONDS)

    def _claim(self, most: int, session: Session) -> list[Claim] | None:
        """None: what it works for is over."""
        if not still_running(session, self._run_ids):
            return None
        knobs = self._provider.knobs
        return claim_next(session, self._owner, most, lease_seconds=knobs.lease_seconds, per_fiche=knobs.per_fiche)

    def _keep_claims(self, session: Session) -> None:
        extend_claims(session, self._owner, self._provider.knobs.lease_seconds)
        touch_runs(session, [*self._run_ids, *runs_worked_on(session, self._owner)])
