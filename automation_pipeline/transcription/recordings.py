"""Transcription of recordings: a worker claims the most urgent ones and transcribes each of them.

All processes share one queue. A process that waits for its own runs also works on more urgent ones.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from automation_pipeline.core.background import together
from automation_pipeline.core.coordination import rate_per_minute, wait_for_rate
from automation_pipeline.core.errors import AutomationError, InfrastructureError, TransientError
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import database_time
from automation_pipeline.transcription import events
from automation_pipeline.transcription.events import fiche_note
from automation_pipeline.transcription.models import (
    Chunk,
    EndedRecordings,
    SpeechOptions,
    TaskState,
    Transcript,
)
from automation_pipeline.transcription.ports import ProviderAccessError, SpeechProvider
from automation_pipeline.transcription.queries.recordings import save_transcripts
from automation_pipeline.transcription.queries.runs import (
    any_running,
    touch_runs,
)
from automation_pipeline.transcription.queries.tasks import (
    RecordingClaim,
    begin_attempts,
    claim_next,
    extend_claims,
    finish_tasks,
    release_for_retry,
    runs_worked_on,
)
from automation_pipeline.transcription.rules import (
    FailRecording,
    RetryRecording,
    after_error,
    chunks_of,
    words_or_estimated,
)
from automation_pipeline.transcription.runs import settle_recordings

RATE_LIMIT = "speech-to-text"
POLL_SECONDS = 0.25
# Recordings that are claimed ahead of the rate limit, so that their audio is downloaded in time: two,
# or as many as the provider takes in `AHEAD_SECONDS`. A recording that becomes urgent waits for no
# more than these.
AHEAD, AHEAD_SECONDS = 2, 2.0

Result = TypeVar("Result")


async def transcribe_waiting(
    run_ids: Sequence[str],
    *,
    database: Database,
    provider: SpeechProvider,
    owner: str,
    stop: asyncio.Event | None = None,
) -> None:
    """Transcribe recordings until these runs have ended or `stop` is set. Recordings that are
    claimed by then are still transcribed. Each call appends a random suffix to `owner`, so that a
    retry differs from the failed worker."""
    worker = _RecordingWorker(tuple(run_ids), database, provider, f"{owner}/{uuid.uuid4().hex[:8]}")
    async with together() as background:
        heartbeat = background.create_task(worker.heartbeat())
        async with together() as group:
            await worker.work_until_over(group, stop or asyncio.Event())
        heartbeat.cancel()


class _RecordingWorker:
    """Transcribes waiting recordings for one caller, within the provider's concurrency."""

    def __init__(
        self, run_ids: Sequence[str], database: Database, provider: SpeechProvider, owner: str
    ) -> None:
        self._run_ids, self._owner = run_ids, owner
        self._database, self._provider = database, provider
        self._rate = rate_per_minute(provider.options.per_minute)
        self._slots = asyncio.Semaphore(provider.speech.at_once)
        self._ahead = asyncio.Semaphore(
            max(AHEAD, round(AHEAD_SECONDS / self._rate.period_seconds * self._rate.limit))
        )

    async def work_until_over(self, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        """Work on the most urgent recordings of any run, until the caller's runs have ended."""
        while True:
            free = await self._acquire_slots()
            if stop.is_set():
                return
            claims = await self._retry_during_outage(partial(self._claim, free))
            self._release_slots(free - len(claims or ()))
            if claims is None:
                return
            for claim in claims:
                group.create_task(self._work(claim))
            if not claims:
                await asyncio.sleep(POLL_SECONDS)

    async def _acquire_slots(self) -> int:
        """Take every free slot, and wait for the first one."""
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
            await self._retry_during_outage(self._extend_claims)
            await asyncio.sleep(self._provider.options.lease_seconds / 4)

    async def _work(self, claim: RecordingClaim) -> None:
        download_slot = ExitStack()
        download_slot.callback(self._ahead.release)

        async def turn() -> None:
            await wait_for_rate(self._provider.limiter, RATE_LIMIT, self._rate)
            download_slot.close()

        with download_slot:
            await transcribe_recording(
                claim, turn=turn, database=self._database, provider=self._provider
            )
        self._slots.release()

    async def _retry_during_outage(self, query: Callable[[Session], Result]) -> Result:
        """A database outage shorter than the leases does not end the calls in progress."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._provider.options.lease_seconds
        while True:
            try:
                return await self._database.write(query)
            except TransientError:
                if loop.time() > until:
                    raise
                await asyncio.sleep(POLL_SECONDS)

    def _claim(self, most: int, session: Session) -> list[RecordingClaim] | None:
        """Claim recordings. None when the caller's runs have ended."""
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


class ClaimLostError(Exception):
    """Another worker has claimed the recording, so this one makes no call."""


@dataclass(frozen=True)
class EndedRecording:
    """The result of work on a claimed recording; `error` is the reason of a failure."""

    claim: RecordingClaim
    state: TaskState
    progress_every: int
    error: str | None = None
    transcript: Transcript | None = None
    chunks: Sequence[Chunk] = ()


async def transcribe_recording(
    claim: RecordingClaim,
    *,
    turn: Callable[[], Awaitable[None]],
    database: Database,
    provider: SpeechProvider,
) -> None:
    """Transcribe one claimed recording; it ends as done, cached, failed, or waiting for a retry.

    `turn` is awaited after the audio is downloaded, before the provider's call. A lost claim makes
    no call and writes nothing.
    """
    options, breaker = provider.options, provider.breaker
    if claim.has_transcription or claim.attempts >= options.max_attempts:
        await database.write_in_bulk(end_recordings, _ended_without_call(claim, options))
        return
    called = False

    async def before_call() -> None:
        nonlocal called
        await turn()
        breaker.check()
        if not await database.write_in_bulk(_begin_attempts, claim):
            raise ClaimLostError
        called = True

    try:
        breaker.check()
        transcript = await provider.speech.transcribe(claim.url, turn=before_call)
    except ClaimLostError:
        return
    except AutomationError as error:
        if called and isinstance(error, ProviderAccessError):
            breaker.open(str(error))
        await _record_error(claim, error, called, options, database)
    else:
        chunks = chunks_of(words_or_estimated(transcript, claim.duration_seconds))
        done = EndedRecording(
            claim, TaskState.DONE, options.progress_every, transcript=transcript, chunks=chunks
        )
        await database.write_in_bulk(end_recordings, done)


async def _record_error(
    claim: RecordingClaim,
    error: AutomationError,
    called: bool,
    options: SpeechOptions,
    database: Database,
) -> None:
    verdict = after_error(error, claim.attempts + claim.audio_failures + 1, options, Random())
    if isinstance(verdict, FailRecording):
        failed = EndedRecording(claim, TaskState.FAILED, options.progress_every, verdict.error)
        await database.write_in_bulk(end_recordings, failed)
    else:
        of_audio = not called and not isinstance(error, InfrastructureError)
        await database.write(partial(_release, claim, verdict, of_audio=of_audio))


def _ended_without_call(claim: RecordingClaim, options: SpeechOptions) -> EndedRecording:
    if claim.has_transcription:
        return EndedRecording(claim, TaskState.CACHED, options.progress_every)
    gave_up = f"Given up after {claim.attempts} attempts without a recorded end"
    return EndedRecording(claim, TaskState.FAILED, options.progress_every, error=gave_up)


def _begin_attempts(session: Session, claims: Sequence[RecordingClaim]) -> list[bool]:
    """Whether each claim is still held."""
    started = begin_attempts(session, claims)
    for claim in claims:
        if claim.task_id in started:
            attempt = claim.attempts + 1
            enqueue(session, [_recording_event("started", claim, session, attempt=attempt)])
            message = f"Recording {claim.call_id}: attempt {attempt}"
            write_notes(session, fiche_note(claim.run_id, claim.fiche_id, message))
    return [claim.task_id in started for claim in claims]


def _release(
    claim: RecordingClaim, verdict: RetryRecording, session: Session, *, of_audio: bool
) -> None:
    seconds = verdict.after.total_seconds()
    message = f"Recording {claim.call_id}: retry in {seconds:.0f} s. {verdict.error}"
    if release_for_retry(session, claim, verdict.after, verdict.error, of_audio=of_audio):
        write_notes(session, fiche_note(claim.run_id, claim.fiche_id, message, level="warning"))


def end_recordings(session: Session, recordings: Sequence[EndedRecording]) -> list[None]:
    """End the tasks, save the transcripts and count both in their runs. A recording that another
    worker has claimed since stays as it is."""
    claims_by_result: dict[tuple[TaskState, str | None], list[RecordingClaim]] = {}
    for each in recordings:
        claims_by_result.setdefault((each.state, each.error), []).append(each.claim)
    finished = set[int]()
    for (state, error), claims in claims_by_result.items():
        finished |= finish_tasks(session, claims, state, error)
    ended = [each for each in recordings if each.claim.task_id in finished]
    save_transcripts(
        session,
        {
            each.claim.recording_id: (each.transcript, each.chunks)
            for each in ended
            if each.transcript is not None
        },
    )
    counts: dict[int, dict[str, EndedRecordings]] = {}
    for each in ended:
        claim = each.claim
        if each.transcript is not None:
            name = each.transcript.transcription_id
            enqueue(session, [_recording_event("completed", claim, session, transcription_id=name)])
        if each.error is not None:
            enqueue(session, [_recording_event("failed", claim, session, error=each.error)])
            message = f"Recording {claim.call_id} failed: {each.error}"
            write_notes(session, fiche_note(claim.run_id, claim.fiche_id, message, level="error"))
        of_runs = counts.setdefault(each.progress_every, {})
        is_cached, is_failed = each.state is TaskState.CACHED, each.state is TaskState.FAILED
        one = EndedRecordings(1, cached=int(is_cached), failed=int(is_failed))
        before = of_runs.get(claim.run_id)
        of_runs[claim.run_id] = one if before is None else before + one
    for progress_every, of_runs in counts.items():
        settle_recordings(session, of_runs, progress_every=progress_every)
    return [None] * len(recordings)


def _recording_event(
    phase: str, claim: RecordingClaim, session: Session, **details: object
) -> events.Event:
    at = database_time(session)
    return events.recording(
        phase, claim.run_id, claim.fiche_id, claim.call_id, claim.position, at, **details
    )
