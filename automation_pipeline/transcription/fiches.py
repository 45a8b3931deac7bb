"""Transcription of several fiches or of a day: start one run per fiche, then work until all have ended."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from datetime import date, datetime
from functools import partial

from automation_pipeline.core.background import process_concurrently
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import (
    AutomationError,
    InfrastructureError,
    PermanentError,
    TransientError,
    sentence_of,
)
from automation_pipeline.fiches.models.fiches import DetailsKnown
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.queries.details import known_since
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.transcription.models import (
    DayTranscripts,
    TranscriptionPriority,
    TranscriptionStatus,
    TranscriptionSummary,
)
from automation_pipeline.transcription.ports import SpeechProvider
from automation_pipeline.transcription.queries.recordings import (
    fiches_to_transcribe,
    transcripts_of_day,
)
from automation_pipeline.transcription.queries.runs import list_summaries
from automation_pipeline.transcription.recordings import transcribe_waiting
from automation_pipeline.transcription.runs import (
    TranscriptionRunRequest,
    begin_transcription,
    fail_run,
    join_or_start,
    open_run,
)

# Requests that one transaction starts.
AT_ONCE = 100


async def transcribe_fiches(  # noqa: PLR0913  ports, by name
    requests: Sequence[TranscriptionRunRequest],
    *,
    database: Database,
    source: Callable[[], FicheSource],
    provider: Callable[[], SpeechProvider],
    clock: Clock,
    owner: str,
    gives_up: bool = True,
) -> list[TranscriptionSummary]:
    """Transcribe the fiches and return how their runs ended. `owner` names the worker.

    An error of the CRM for one fiche does not affect the others; it is raised if no run started.
    Every request has a run before the first step that can fail: `source` and `provider` raise
    PermanentError for a missing setting, and the runs fail with it. The provider is opened only if
    a recording needs a transcript. With `gives_up=False`, runs stay open after a TransientError,
    because the caller repeats the same requests.
    """
    started = await begin_transcriptions(
        requests, database=database, source=source, clock=clock, gives_up=gives_up
    )
    runs = [result for result in started if isinstance(result, TranscriptionSummary)]
    errors = [result for result in started if isinstance(result, AutomationError)]
    if errors and not runs:
        raise errors[0]
    running = [run.run_id for run in runs if run.status is TranscriptionStatus.RUNNING]
    if running:
        own = [request.run_id for request in requests if request.run_id in running]
        await work_on_runs(running, own=own, database=database, provider=provider, owner=owner)
    with database.reading() as session:
        return list_summaries(session, [run.run_id for run in runs])


async def begin_transcriptions(
    requests: Sequence[TranscriptionRunRequest],
    *,
    database: Database,
    source: Callable[[], FicheSource],
    clock: Clock,
    gives_up: bool = True,
) -> list[TranscriptionSummary | AutomationError]:
    """Return per request, in order, the run that works on its fiche (a new or an active one), or the
    error that prevents it."""
    try:
        crm = source()
    except PermanentError as error:
        await _fail_all(requests, error, database)
        raise
    fresh = _fresh_fiches(requests, database, clock)
    stored = [request for request in requests if request.fiche_id in fresh]
    started: dict[str, TranscriptionSummary | AutomationError] = {}
    for first in range(0, len(stored), AT_ONCE):
        chunk = stored[first : first + AT_ONCE]
        runs = await database.write(partial(join_or_start, requests=chunk))
        started.update(zip([request.run_id for request in chunk], runs, strict=True))

    async def begin(
        request: TranscriptionRunRequest,
    ) -> tuple[str, TranscriptionSummary | AutomationError]:
        try:
            return request.run_id, await begin_transcription(
                request, database=database, source=crm, clock=clock, gives_up=gives_up
            )
        except InfrastructureError:
            raise
        except (TransientError, PermanentError) as error:
            return request.run_id, error

    others = [request for request in requests if request.fiche_id not in fresh]
    await process_concurrently(others, begin, started.update, width=crm.at_once)
    return [started[request.run_id] for request in requests]


async def work_on_runs(
    run_ids: Sequence[str],
    *,
    own: Sequence[str],
    database: Database,
    provider: Callable[[], SpeechProvider],
    owner: str,
    stop: asyncio.Event | None = None,
) -> None:
    """Work until these runs have ended, or claim no more recordings once `stop` is set.

    Without a provider the `own` runs fail; a run of another process continues.
    """
    try:
        speech = provider()
    except PermanentError as error:
        for run_id in own:
            await database.write(partial(fail_run, run_id=run_id, reason=sentence_of(error)))
        raise
    await transcribe_waiting(run_ids, database=database, provider=speech, owner=owner, stop=stop)


async def _fail_all(
    requests: Sequence[TranscriptionRunRequest], error: PermanentError, database: Database
) -> None:
    """Fail the run of every request, because a setting is missing. Runs of other processes continue."""

    def fail_own(session: Session, request: TranscriptionRunRequest) -> None:
        run = open_run(request, session)
        if run.run_id == request.run_id:
            fail_run(session, run.run_id, sentence_of(error))

    for request in requests:
        await database.write(partial(fail_own, request=request))


def _fresh_fiches(
    requests: Sequence[TranscriptionRunRequest], database: Database, clock: Clock
) -> set[str]:
    """The fiches whose stored details are as new as their requests demand."""
    since: dict[datetime, list[str]] = {}
    for request in requests:
        if request.fresh_since is not None:
            since.setdefault(request.fresh_since, []).append(request.fiche_id)
    with database.reading() as session:
        known = [
            outcome
            for at, fiche_ids in since.items()
            for outcome in known_since(session, fiche_ids, at, clock.now())
        ]
    return {outcome.fiche_id for outcome in known if isinstance(outcome, DetailsKnown)}


async def transcribe_day(
    day: date,
    *,
    database: Database,
    source: Callable[[], FicheSource],
    provider: Callable[[], SpeechProvider],
    clock: Clock,
    owner: str,
) -> DayTranscripts:
    """Transcribe the day's fiches with low priority, and return the day's counts afterwards."""
    with database.reading() as session:
        fiche_ids = fiches_to_transcribe(session, day)
    requests = [
        TranscriptionRunRequest(str(uuid.uuid4()), fiche_id, TranscriptionPriority.LOW)
        for fiche_id in fiche_ids
    ]
    await transcribe_fiches(
        requests, database=database, source=source, provider=provider, clock=clock, owner=owner
    )
    with database.reading() as session:
        return transcripts_of_day(session, day)
