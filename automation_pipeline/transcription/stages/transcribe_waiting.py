"""Work on waiting recordings, the most urgent of all first, until the given runs are over.

Every process takes from the same queue: one that waits for a low fiche transcribes the high ones of others meanwhile.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

from automation_pipeline.core.coordination import Rate
from automation_pipeline.core.tasks import together
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription.domain.attempts import Knobs
from automation_pipeline.transcription.ports import Provider
from automation_pipeline.transcription.stages.transcribe_recording import transcribe_recording
from automation_pipeline.transcription.store.runs import still_running, touch_runs
from automation_pipeline.transcription.store.tasks import Claim, claim_next, extend_claims

LIMIT = "speech-to-text"
LOOK_AGAIN_SECONDS = 0.25
# A call may reach the provider a little after its turn: a hundredth to spare keeps any minute within the cap.
MINUTE = 60.6
# Recordings that are taken before it is their turn: one downloads while the other waits. What becomes urgent meanwhile
# is overtaken by no more than these.
AHEAD = 2


async def transcribe_waiting(
    run_ids: Sequence[str],
    *,
    database: Database,
    provider: Provider,
    owner: str,
) -> None:
    """`owner` names this caller alone."""
    knobs = provider.knobs
    places, ahead = asyncio.Semaphore(provider.speech.at_once), asyncio.Semaphore(AHEAD)
    rate = Rate(knobs.per_minute, MINUTE)

    async def work(claim: Claim) -> None:
        before_its_turn = ExitStack()
        before_its_turn.callback(ahead.release)

        async def turn() -> None:
            await asyncio.sleep(await asyncio.to_thread(provider.limiter.reserve, LIMIT, rate) or 0.0)
            before_its_turn.close()

        with before_its_turn:
            await transcribe_recording(claim, turn=turn, database=database, speech=provider.speech, knobs=knobs)
        places.release()

    async with together() as group:
        beating = group.create_task(_beat(owner, run_ids, database, knobs))
        while True:
            await places.acquire()
            await ahead.acquire()
            claim = await asyncio.to_thread(_claim, owner, database, knobs)
            if claim is not None:
                group.create_task(work(claim))
                continue
            places.release()
            ahead.release()
            if not await asyncio.to_thread(_still_running, run_ids, database):
                break
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        beating.cancel()


def _claim(owner: str, database: Database, knobs: Knobs) -> Claim | None:
    with database.transaction() as session:
        return claim_next(session, owner, lease_seconds=knobs.lease_seconds, per_fiche=knobs.per_fiche)


def _still_running(run_ids: Sequence[str], database: Database) -> bool:
    with database.reading() as session:
        return still_running(session, run_ids)


async def _beat(owner: str, run_ids: Sequence[str], database: Database, knobs: Knobs) -> None:
    def beat() -> None:
        with database.transaction() as session:
            extend_claims(session, owner, knobs.lease_seconds)
            touch_runs(session, run_ids)

    while True:
        await asyncio.sleep(knobs.lease_seconds / 4)
        await asyncio.to_thread(beat)
