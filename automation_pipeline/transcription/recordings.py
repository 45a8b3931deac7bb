"""Transcription of recordings: a worker that claims the most urgent ones, and one recording.

Every process takes from the same queue: while it waits for a low priority, it transcribes higher
ones.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import TypeVar

from automation_pipeline.core.background import together
from automation_pipeline.core.coordination import Rate, reserve
from automation_pipeline.core.errors import AutomationError, InfrastructureError, TransientError
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes
from automation_pipeline.transcription import events
from automation_pipeline.transcription.events import fiche_note
from automation_pipeline.transcription.models import Chunk, SpeechOptions, TaskState, Transcript
from automation_pipeline.transcription.ports import ProviderAccessError, SpeechProvider
from automation_pipeline.transcription.queries.recordings import save_transcript
from automation_pipeline.transcription.queries.runs import any_running, touch_runs
from automation_pipeline.transcription.queries.tasks import (
    RecordingClaim,
    begin_attempt,
    claim_next,
    extend_claims,
    finish_task,
    release_for_retry,
    runs_worked_on,
)
from automation_pipeline.transcription.rules import (
    FailRecording,
    after_error,
    chunks_of,
    words_or_estimated,
)
from automation_pipeline.transcription.runs import settle_recordings


class ClaimLostError(Exception):
    """Somebody else has the recording by now: no call is made for it here."""


async def transcribe_recording(
    claim: RecordingClaim,
    *,
    turn: Callable[[], Awaitable[None]],
    database: Database,
    provider: SpeechProvider,
) -> None:
    """Ends as done, cached, failed, or waiting for a later attempt. `turn` is awaited when the
    audio is here and the provider is next. A claim that has passed on makes no call and writes
    nothing."""
    options, breaker = provider.options, provider.breaker
    end = _end_without_call(claim, options)
    if end is not None:
        await database.write(end)
        return
    called = False

    async def my_turn() -> None:
        nonlocal called
        await turn()
        breaker.check()
        if not await database.write(partial(_begin_attempt, claim)):
            raise ClaimLostError
        called = True

    try:
        breaker.check()
        transcript = await provider.speech.transcribe(claim.url, turn=my_turn)
    except ClaimLostError:
        return
    except AutomationError as error:
        if called and isinstance(error, ProviderAccessError):
            breaker.open(str(error))
        await database.write(partial(_record_error, claim, error, options, called=called))
    else:
        chunks = chunks_of(words_or_estimated(transcript, claim.duration_seconds))
        await database.write(partial(_save_transcript, claim, transcript, chunks, options))


def _end_without_call(
    claim: RecordingClaim, options: SpeechOptions
) -> Callable[[Session], None] | None:
    if claim.has_transcription:
        return partial(_end_recording, claim, TaskState.CACHED, None, options)
    if claim.attempts >= options.max_attempts:
        gave_up = f"Given up after {claim.attempts} attempts that nobody saw the end of"
        return partial(_end_recording, claim, TaskState.FAILED, gave_up, options)
    return None


def _begin_attempt(claim: RecordingClaim, session: Session) -> bool:
    if not begin_attempt(session, claim):
        return False
    attempt = claim.attempts + 1
    enqueue(session, [_recording_event("started", claim, session, attempt=attempt)])
    write_notes(
        session,
        fiche_note(claim.run_id, claim.fiche_id, f"Recording {claim.call_id}: attempt {attempt}"),
    )
    return True


def _record_error(
    claim: RecordingClaim,
    error: AutomationError,
    options: SpeechOptions,
    session: Session,
    *,
    called: bool,
) -> None:
    verdict = after_error(error, claim.attempts + claim.audio_failures + 1, options, Random())
    if isinstance(verdict, FailRecording):
        _end_recording(claim, TaskState.FAILED, verdict.error, options, session)
        return
    message = f"Recording {claim.call_id}: again in {verdict.after.total_seconds():.0f} s. {verdict.error}"
    of_audio = not called and not isinstance(error, InfrastructureError)
    if release_for_retry(session, claim, verdict.after, verdict.error, of_audio=of_audio):
        write_notes(session, fiche_note(claim.run_id, claim.fiche_id, message, level="warning"))


def _save_transcript(
    claim: RecordingClaim,
    transcript: Transcript,
    chunks: Sequence[Chunk],
    options: SpeechOptions,
    session: Session,
) -> None:
    if not finish_task(session, claim, TaskState.DONE):
        return
    save_transcript(session, claim.recording_id, transcript, chunks)
    enqueue(
        session,
        [
            _recording_event(
                "completed", claim, session, transcription_id=transcript.transcription_id
            )
        ],
    )
    settle_recordings(session, claim.run_id, processed=1, progress_every=options.progress_every)


def _end_recording(
    claim: RecordingClaim,
    state: TaskState,
    error: str | None,
    options: SpeechOptions,
    session: Session,
) -> None:
    if not finish_task(session, claim, state, error):
        return
    if error is not None:
        enqueue(session, [_recording_event("failed", claim, session, error=error)])
        message = f"Recording {claim.call_id} failed: {error}"
        write_notes(session, fiche_note(claim.run_id, claim.fiche_id, message, level="error"))
    cached, failed = int(state is TaskState.CACHED), int(state is TaskState.FAILED)
    settle_recordings(
        session,
        claim.run_id,
        processed=1,
        cached=cached,
        failed=failed,
        progress_every=options.progress_every,
    )


def _recording_event(
    what: str, claim: RecordingClaim, session: Session, **more: object
) -> events.Event:
    at = database_time(session)
    return events.recording(
        what, claim.run_id, claim.fiche_id, claim.call_id, claim.place, at, **more
    )


RATE_LIMIT = "speech-to-text"
POLL_SECONDS = 0.25
# A call may reach the provider a little after its turn: a hundredth to spare keeps any minute
# within the cap.
RATE_PERIOD_SECONDS = 60.6
# Recordings that are taken before it is their turn, so that they are downloaded by then: two, or as
# many as the provider takes in that time. What becomes urgent meanwhile is overtaken by no more
# than these, in each process.
AHEAD, AHEAD_SECONDS = 2, 2.0

Result = TypeVar("Result")


async def transcribe_waiting(
    run_ids: Sequence[str],
    *,
    database: Database,
    provider: SpeechProvider,
    owner: str,
) -> None:
    """`owner` says who works; each call adds a name of its own, so that a retry never passes for
    what failed."""
    worker = _RecordingWorker(tuple(run_ids), database, provider, f"{owner}/{uuid.uuid4().hex[:8]}")
    async with together() as background:
        heartbeat = background.create_task(worker.heartbeat())
        async with together() as group:
            await worker.work_until_over(group)
        heartbeat.cancel()


class _RecordingWorker:
    """Works on waiting recordings for one caller, within the slots of the provider."""

    def __init__(
        self, run_ids: Sequence[str], database: Database, provider: SpeechProvider, owner: str
    ) -> None:
        self._run_ids, self._database, self._provider, self._owner = (
            run_ids,
            database,
            provider,
            owner,
        )
        self._slots = asyncio.Semaphore(provider.speech.at_once)
        self._ahead = asyncio.Semaphore(
            max(AHEAD, round(AHEAD_SECONDS * provider.options.per_minute / RATE_PERIOD_SECONDS))
        )
        self._rate = Rate(provider.options.per_minute, RATE_PERIOD_SECONDS)

    async def work_until_over(self, group: asyncio.TaskGroup) -> None:
        """Helps with what is most urgent, but not for longer than its own runs last."""
        while True:
            free = await self._acquire_slots()
            claims = await self._retry_while_database_is_away(partial(self._claim, free))
            self._release_slots(free - len(claims or ()))
            if claims is None:
                return
            for claim in claims:
                group.create_task(self._work(claim))
            if not claims:
                await asyncio.sleep(POLL_SECONDS)

    async def _acquire_slots(self) -> int:
        """All that are free, one at least."""
        taken = 0
        while not taken or not (self._slots.locked() or self._ahead.locked()):
            await self._slots.acquire()
            await self._ahead.acquire()
            taken += 1
        return taken

    def _release_slots(self, number: int) -> None:
        for _ in range(number):
            self._slots.release()
            self._ahead.release()

    async def heartbeat(self) -> None:
        while True:
            await self._retry_while_database_is_away(self._extend_claims)
            await asyncio.sleep(self._provider.options.lease_seconds / 4)

    async def _work(self, claim: RecordingClaim) -> None:
        download_slot = ExitStack()
        download_slot.callback(self._ahead.release)

        async def turn() -> None:
            await asyncio.sleep(
                await reserve(self._provider.limiter, RATE_LIMIT, self._rate) or 0.0
            )
            download_slot.close()

        with download_slot:
            await transcribe_recording(
                claim, turn=turn, database=self._database, provider=self._provider
            )
        self._slots.release()

    async def _retry_while_database_is_away(self, ask: Callable[[Session], Result]) -> Result:
        """A database that is away for a moment, shorter than our leases, does not end the calls in
        flight."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._provider.options.lease_seconds
        while True:
            try:
                return await self._database.write(ask)
            except TransientError:
                if loop.time() > until:
                    raise
                await asyncio.sleep(POLL_SECONDS)

    def _claim(self, most: int, session: Session) -> list[RecordingClaim] | None:
        """None: what it works for is over."""
        if not any_running(session, self._run_ids):
            return None
        options = self._provider.options
        return claim_next(
            session,
            self._owner,
            most,
            lease_seconds=options.lease_seconds,
            per_fiche=options.per_fiche,
        )

    def _extend_claims(self, session: Session) -> None:
        extend_claims(session, self._owner, self._provider.options.lease_seconds)
        touch_runs(session, [*self._run_ids, *runs_worked_on(session, self._owner)])
