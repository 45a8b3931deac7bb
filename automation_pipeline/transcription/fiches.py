"""Transcription of fiches, also of those of a day: a run for each, then work until the last run
ends."""

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
    open_run,
)


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
    """How the runs of the fiches ended. A fiche that the CRM gives no answer for takes nothing from
    the others; when it is the only one, its error is raised. `owner` says who works.

    Every wish has its run before the first thing that can fail: `source` and `provider` raise
    PermanentError where a setting is missing, and that is how the runs end too. The provider is
    opened only if something is to be transcribed. With `gives_up=False` the caller repeats the same
    wishes after a TransientError: their runs stay open for it.
    """
    begun = await begin_transcriptions(
        requests, database=database, source=source, clock=clock, gives_up=gives_up
    )
    runs = [one for one in begun if isinstance(one, TranscriptionSummary)]
    errors = [one for one in begun if isinstance(one, AutomationError)]
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
    """For each request, in order: the run that works on its fiche, its own or the one under way, or
    why none does."""
    try:
        crm = source()
    except PermanentError as error:
        await _fail_all(requests, error, database)
        raise
    begun: dict[str, TranscriptionSummary | AutomationError] = {}
    fresh = _fresh_fiches(requests, database, clock)

    async def begin(
        request: TranscriptionRunRequest,
    ) -> tuple[str, TranscriptionSummary | AutomationError]:
        try:
            is_fresh = request.fiche_id in fresh
            return request.run_id, await begin_transcription(
                request,
                database=database,
                source=crm,
                clock=clock,
                is_fresh=is_fresh,
                gives_up=gives_up,
            )
        except InfrastructureError:
            raise
        except (TransientError, PermanentError) as error:
            return request.run_id, error

    await process_concurrently(requests, begin, begun.update, width=crm.at_once)
    return [begun[request.run_id] for request in requests]


async def work_on_runs(
    run_ids: Sequence[str],
    *,
    own: Sequence[str],
    database: Database,
    provider: Callable[[], SpeechProvider],
    owner: str,
) -> None:
    """Until they are over. Without a provider the `own` runs fail; a run that another process began
    goes on."""
    try:
        speech = provider()
    except PermanentError as error:
        for run_id in own:
            await database.write(partial(_fail_run, run_id, sentence_of(error)))
        raise
    await transcribe_waiting(run_ids, database=database, provider=speech, owner=owner)


def _fail_run(run_id: str, reason: str, session: Session) -> None:
    fail_run(session, run_id, reason)


async def _fail_all(
    requests: Sequence[TranscriptionRunRequest], error: PermanentError, database: Database
) -> None:
    """None of them can be attempted: a setting is missing. A run that another process works on goes
    on."""
    for request in requests:
        await database.write(partial(_fail_own, request, sentence_of(error)))


def _fail_own(request: TranscriptionRunRequest, reason: str, session: Session) -> None:
    run = open_run(request, session)
    if run.run_id == request.run_id:
        fail_run(session, run.run_id, reason)


def _fresh_fiches(
    requests: Sequence[TranscriptionRunRequest], database: Database, clock: Clock
) -> set[str]:
    """The fiches whose details are as fresh as their wishes want them."""
    since: dict[datetime, list[str]] = {}
    for request in requests:
        if request.fresh_since is not None:
            since.setdefault(request.fresh_since, []).append(request.fiche_id)
    with database.reading() as session:
        known = [
            one for at, ids in since.items() for one in known_since(session, ids, at, clock.now())
        ]
    return {one.fiche_id for one in known if isinstance(one, DetailsKnown)}


async def transcribe_day(
    day: date,
    *,
    database: Database,
    source: Callable[[], FicheSource],
    provider: Callable[[], SpeechProvider],
    clock: Clock,
    owner: str,
) -> DayTranscripts:
    """How the day stands afterwards. Work of the day gives way to what people ask for by hand."""
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
