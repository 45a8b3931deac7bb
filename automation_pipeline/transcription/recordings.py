"""Transcription of recordings: a worker claims the most urgent ones, transcribes each of them, and
counts it in its run.

All processes share one queue. A process that waits for its own runs also works on more urgent ones.
"""

import asyncio
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TypeVar

from automation_pipeline.core.background import together
from automation_pipeline.core.coordination import rate_per_minute, wait_for_rate
from automation_pipeline.core.errors import AutomationError, InfrastructureError, TransientError
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import database_now, database_time
from automation_pipeline.transcription import events
from automation_pipeline.transcription.events import fiche_note
from automation_pipeline.transcription.models import (
    Chunk,
    ProviderAccessError,
    SpeechOptions,
    SpeechProvider,
    TaskState,
    Transcript,
    TranscriptionStatus,
    TranscriptionSummary,
    is_transcribed,
)
from automation_pipeline.transcription.queries.runs import (
    TASKS,
    RecordingClaim,
    Task,
    any_running,
    claim_next,
    count_recordings,
    end_runs,
    finish_tasks,
    save_transcripts,
    touch_runs,
)
from automation_pipeline.transcription.rules import (
    FailRecording,
    RetryRecording,
    after_error,
    chunks_of,
    words_or_estimated,
)

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
        self._claims = set[RecordingClaim]()

    async def work_until_over(self, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        """Work on the most urgent recordings of any run, until the caller's runs have ended."""
        while True:
            free = await self._acquire_slots()
            if stop.is_set():
                return
            claims = await self._retry_during_outage(partial(self._claim, free))
            if claims is None:
                return
            for _ in range(free - len(claims)):
                self._slots.release()
                self._ahead.release()
            self._claims.update(claims)
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

    async def heartbeat(self) -> None:
        """Extend the claims and touch the runs, four times per lease."""

        def beat(session: Session) -> None:
            held = [(claim.task_id, claim.token) for claim in self._claims]
            TASKS.extend(session, held, self._provider.options.lease_seconds)
            touch_runs(session, [*self._run_ids, *{claim.run_id for claim in self._claims}])

        while True:
            await self._retry_during_outage(beat)
            await asyncio.sleep(self._provider.options.lease_seconds / 4)

    async def _work(self, claim: RecordingClaim) -> None:
        download_slot = ExitStack()
        download_slot.callback(self._ahead.release)

        async def wait_for_rate_limit() -> None:
            await wait_for_rate(self._provider.limiter, RATE_LIMIT, self._rate)
            download_slot.close()

        with download_slot:
            await transcribe_recording(
                claim,
                before_call=wait_for_rate_limit,
                database=self._database,
                provider=self._provider,
            )
        self._claims.discard(claim)
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

    def _claim(self, limit: int, session: Session) -> list[RecordingClaim] | None:
        """Claim recordings. None when the caller's runs have ended."""
        if not any_running(session, self._run_ids):
            return None
        options = self._provider.options
        return claim_next(
            session,
            self._owner,
            limit,
            lease_seconds=options.lease_seconds,
            per_fiche=options.per_fiche,
        )


class ClaimLostError(Exception):
    """Another worker has claimed the recording, so this one makes no call."""


@dataclass(frozen=True)
class EndedRecording:
    """The result of work on a claimed recording; `error` is the reason of a failure."""

    claim: RecordingClaim
    options: SpeechOptions
    state: TaskState
    error: str | None = None
    transcript: Transcript | None = None
    chunks: Sequence[Chunk] = ()


async def transcribe_recording(
    claim: RecordingClaim,
    *,
    before_call: Callable[[], Awaitable[None]],
    database: Database,
    provider: SpeechProvider,
) -> None:
    """Transcribe one claimed recording; it ends as done, cached, failed, or waiting for a retry.

    `before_call` is awaited after the audio is downloaded, before the provider's call. A lost claim makes
    no call and writes nothing.
    """
    options = provider.options
    if is_transcribed(claim.has_transcription, claim.transcribed_at, claim.renew_before):
        ended = EndedRecording(claim, options, TaskState.CACHED)
    elif claim.attempts >= options.max_attempts:
        error = f"Given up after {claim.attempts} attempts without a recorded end"
        ended = EndedRecording(claim, options, TaskState.FAILED, error)
    else:
        ended = await _attempt(claim, before_call, database, provider)
    if ended is not None:
        await database.write_in_bulk(end_recordings, ended)


async def _attempt(
    claim: RecordingClaim,
    before_call: Callable[[], Awaitable[None]],
    database: Database,
    provider: SpeechProvider,
) -> EndedRecording | None:
    """Make one call. None if the claim is lost, or the recording waits for another attempt."""
    options, breaker = provider.options, provider.breaker
    called = False

    async def count_call() -> None:
        nonlocal called
        await before_call()
        breaker.check()
        if not await database.write_in_bulk(_begin_attempts, claim):
            raise ClaimLostError
        called = True

    try:
        breaker.check()
        transcript = await provider.speech.transcribe(claim.url, before_call=count_call)
    except ClaimLostError:
        return None
    except AutomationError as error:
        if called and isinstance(error, ProviderAccessError):
            breaker.open(str(error))
        verdict = after_error(error, claim.attempts + claim.audio_failures + 1, options, Random())
        if isinstance(verdict, FailRecording):
            return EndedRecording(claim, options, TaskState.FAILED, verdict.error)
        is_audio_failure = not called and not isinstance(error, InfrastructureError)
        await database.write(partial(_release, claim, verdict, is_audio_failure=is_audio_failure))
        return None
    chunks = chunks_of(words_or_estimated(transcript, claim.duration_seconds))
    return EndedRecording(claim, options, TaskState.DONE, None, transcript, chunks)


def _begin_attempts(session: Session, claims: Sequence[RecordingClaim]) -> list[bool]:
    """Count one call per claim, right before the calls are made. Returns whether each claim is still
    held."""
    keys = [(claim.task_id, claim.token) for claim in claims]
    held = TASKS.change(session, keys, attempts=Task.attempts + 1)
    for claim, key in zip(claims, keys, strict=True):
        if key in held:
            attempt = claim.attempts + 1
            started = _recording_event("started", claim, session)
            enqueue(session, [replace(started, key=f"{started.key}:{attempt}")])
            message = f"Recording {claim.call_id}: attempt {attempt}"
            write_notes(session, fiche_note(claim.run_id, claim.fiche_id, message))
    return [key in held for key in keys]


def _release(
    claim: RecordingClaim, verdict: RetryRecording, session: Session, *, is_audio_failure: bool
) -> None:
    """Let the recording wait for its next attempt. Failures of the audio are counted separately from
    calls."""
    seconds = verdict.after.total_seconds()
    if finish_tasks(
        session,
        [claim],
        TaskState.WAITING,
        verdict.error,
        available_at=database_now(seconds),
        audio_failures=Task.audio_failures + int(is_audio_failure),
        owner=None,
    ):
        message = f"Recording {claim.call_id}: retry in {seconds:.0f} s. {verdict.error}"
        write_notes(session, fiche_note(claim.run_id, claim.fiche_id, message, level="warning"))


def end_recordings(session: Session, recordings: Sequence[EndedRecording]) -> list[None]:
    """End the tasks, save the transcripts and count both in their runs. A recording that another
    worker has claimed since stays as it is."""
    claims_by_result = defaultdict[tuple[TaskState, str | None], list[RecordingClaim]](list)
    for each in recordings:
        claims_by_result[each.state, each.error].append(each.claim)
    finished = set[int]()
    for (state, error), claims in claims_by_result.items():
        finished |= finish_tasks(session, claims, state, error)
    ended = [each for each in recordings if each.claim.task_id in finished]
    transcripts = {
        each.claim.recording_id: (each.transcript, each.chunks)
        for each in ended
        if each.transcript is not None
    }
    save_transcripts(session, transcripts)
    counts = defaultdict[int, dict[str, Counter[TaskState]]](dict)
    for each in ended:
        claim = each.claim
        if each.transcript is not None:
            name = each.transcript.transcription_id
            enqueue(session, [_recording_event("completed", claim, session, transcription_id=name)])
        if each.error is not None:
            enqueue(session, [_recording_event("failed", claim, session, error=each.error)])
            message = f"Recording {claim.call_id} failed: {each.error}"
            write_notes(session, fiche_note(claim.run_id, claim.fiche_id, message, level="error"))
        of_runs = counts[each.options.progress_every]
        of_runs.setdefault(claim.run_id, Counter())[each.state] += 1
    for progress_every, of_runs in counts.items():
        settle_recordings(session, of_runs, progress_every=progress_every)
    return [None] * len(recordings)


def _recording_event(
    phase: str, claim: RecordingClaim, session: Session, **details: object
) -> events.Event:
    return events.recording(
        phase,
        claim.run_id,
        claim.fiche_id,
        claim.call_id,
        (claim.recording_index, claim.target_total),
        database_time(session),
        **details,
    )


def settle_recordings(
    session: Session, ended: Mapping[str, Counter[TaskState]], *, progress_every: int = 1
) -> dict[str, TranscriptionSummary]:
    """Count ended recordings by run in the transaction that ends them, and complete the runs with
    their last ones.

    A progress event is published after every `progress_every` recordings, and at the end.
    """
    if not ended:
        return {}
    now = database_time(session)
    settled, completed = dict[str, TranscriptionSummary](), list[str]()
    for run in count_recordings(session, ended, now):
        settled[run.run_id] = run
        processed = ended[run.run_id].total()
        before = run.processed - processed
        is_due = run.processed // progress_every > before // progress_every
        if processed and (run.is_over or is_due):
            enqueue(session, [events.progress(run, now)])
        if run.is_over and run.status is TranscriptionStatus.RUNNING:
            enqueue(session, events.completed(run, now))
            ended_with = fiche_note(
                run.run_id,
                run.fiche_id,
                f"END: completed, {run.failed} failed",
                new=run.new,
                cached=run.cached,
                failed=run.failed,
            )
            write_notes(session, ended_with)
            settled[run.run_id] = replace(run, status=TranscriptionStatus.COMPLETED)
            completed.append(run.run_id)
    if completed:
        end_runs(session, completed, TranscriptionStatus.COMPLETED)
    return settled
