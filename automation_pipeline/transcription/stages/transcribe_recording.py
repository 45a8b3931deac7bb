"""Transcribe one claimed recording: at most one provider call, and its outcome in the database."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random

from automation_pipeline.core.errors import AutomationError, GroundError
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes
from automation_pipeline.transcription.domain import events
from automation_pipeline.transcription.domain.attempts import GiveUp, Knobs, after_error
from automation_pipeline.transcription.domain.chunks import chunks_of, words_or_synthesised
from automation_pipeline.transcription.domain.notes import fiche_note
from automation_pipeline.transcription.domain.run import TaskState
from automation_pipeline.transcription.domain.transcript import Chunk, Transcript
from automation_pipeline.transcription.ports import Provider, ProviderAccessError
from automation_pipeline.transcription.stages.settle_recordings import settle_recordings
from automation_pipeline.transcription.store.tasks import Claim, begin_attempt, finish_task, put_back
from automation_pipeline.transcription.store.transcripts import save_transcript


class ClaimLostError(Exception):
    """Somebody else has the recording by now: no call is made for it here."""


async def transcribe_recording(
    claim: Claim, *, turn: Callable[[], Awaitable[None]], database: Database, provider: Provider
) -> None:
    """Ends as done, cached, failed, or waiting for a later attempt. `turn` is awaited when the audio is here and the
    provider is next. A claim that has passed on makes no call and writes nothing."""
    knobs, breaker = provider.knobs, provider.breaker
    end = _ends_without_a_call(claim, knobs)
    if end is not None:
        await database.write(end)
        return
    called = False

    async def my_turn() -> None:
        nonlocal called
        await turn()
        breaker.check()
        if not await database.write(partial(_begin, claim)):
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
        await database.write(partial(_after_error, claim, error, knobs, called=called))
    else:
        chunks = chunks_of(words_or_synthesised(transcript, claim.duration_seconds))
        await database.write(partial(_save, claim, transcript, chunks, knobs))


def _ends_without_a_call(claim: Claim, knobs: Knobs) -> Callable[[Session], None] | None:
    if claim.has_transcription:
        return partial(_end, claim, TaskState.CACHED, None, knobs)
    if claim.attempts >= knobs.max_attempts:
        gave_up = f"Given up after {claim.attempts} attempts that nobody saw the end of"
        return partial(_end, claim, TaskState.FAILED, gave_up, knobs)
    return None


def _begin(claim: Claim, session: Session) -> bool:
    if not begin_attempt(session, claim):
        return False
    attempt = claim.attempts + 1
    enqueue(session, [_event("started", claim, session, attempt=attempt)])
    write_notes(session, fiche_note(claim.run_id, claim.fiche_id, f"Recording {claim.call_id}: attempt {attempt}"))
    return True


def _after_error(claim: Claim, error: AutomationError, knobs: Knobs, session: Session, *, called: bool) -> None:
    verdict = after_error(error, claim.attempts + claim.audio_failures + 1, knobs, Random())
    if isinstance(verdict, GiveUp):
        _end(claim, TaskState.FAILED, verdict.error, knobs, session)
        return
    message = f"Recording {claim.call_id}: again in {verdict.after.total_seconds():.0f} s. {verdict.error}"
    of_audio = not called and not isinstance(error, GroundError)
    if put_back(session, claim, verdict.after, verdict.error, of_audio=of_audio):
        write_notes(session, fiche_note(claim.run_id, claim.fiche_id, message, level="warning"))


def _save(claim: Claim, transcript: Transcript, chunks: Sequence[Chunk], knobs: Knobs, session: Session) -> None:
    if not finish_task(session, claim, TaskState.DONE):
        return
    save_transcript(session, claim.recording_id, transcript, chunks)
    enqueue(session, [_event("completed", claim, session, transcription_id=transcript.transcription_id)])
    settle_recordings(session, claim.run_id, processed=1, progress_every=knobs.progress_every)


def _end(claim: Claim, state: TaskState, error: str | None, knobs: Knobs, session: Session) -> None:
    if not finish_task(session, claim, state, error):
        return
    if error is not None:
        enqueue(session, [_event("failed", claim, session, error=error)])
        message = f"Recording {claim.call_id} failed: {error}"
        write_notes(session, fiche_note(claim.run_id, claim.fiche_id, message, level="error"))
    cached, failed = int(state is TaskState.CACHED), int(state is TaskState.FAILED)
    settle_recordings(
        session, claim.run_id, processed=1, cached=cached, failed=failed, progress_every=knobs.progress_every
    )


def _event(what: str, claim: Claim, session: Session, **more: object) -> events.Event:
    at = database_time(session)
    return events.recording(what, claim.run_id, claim.fiche_id, claim.call_id, claim.place, at, **more)
