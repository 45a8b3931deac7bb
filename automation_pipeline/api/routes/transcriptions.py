"""Transcripts: asked for, followed, read."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.context import FicheInPath, TheReach, TheServices
from automation_pipeline.api.documented import takes
from automation_pipeline.api.envelope import Answer, answer, refusals, said
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.once import DoneOnce
from automation_pipeline.api.queries import asked_with
from automation_pipeline.api.schemas.transcriptions import (
    TWO,
    RecordingShown,
    TranscriptionLines,
    TranscriptionQueued,
    TranscriptionsQueued,
    TranscriptionStanding,
)
from automation_pipeline.core.wall_clock import zone
from automation_pipeline.fiches.store.visibility import check_visible
from automation_pipeline.transcription.domain.log_query import LogQuery, read_log_query
from automation_pipeline.transcription.domain.wishes import TranscriptionBatchWish, priority_of, read_batch
from automation_pipeline.transcription.stages.request_transcriptions import request_transcriptions
from automation_pipeline.transcription.store.logs import transcription_logs
from automation_pipeline.transcription.store.recordings import recording_document
from automation_pipeline.transcription.store.status import transcription_status

router = APIRouter(route_class=GuardedRoute, tags=["transcriptions"])
PATH = "/api/transcriptions"
OF_FICHE = f"{PATH}/{{fiche_id}}"
CallInPath = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.:-]{1,200}$", examples=["880001"])]


@router.post(
    f"{PATH}/batch",
    response_model=TranscriptionsQueued,
    responses=refusals(404, 409),
    openapi_extra=takes(TranscriptionBatchWish, two=TWO),
)
def batch(body: TheBody, reach: TheReach, services: TheServices, once: DoneOnce) -> Response:
    """Ask for transcripts of many fiches: once a day, unless what was asked for came to less than all."""
    wish = read_batch(body)
    with services.database.reading() as session:
        check_visible(session, reach, wish.fiche_ids)

    def work() -> Response:
        asked = request_transcriptions(
            wish.fiche_ids, priority=wish.priority, batch=True, database=services.database, clock=services.clock
        )
        keys = [one.key for one in asked if one.key is not None]
        fiche_ids = [one.fiche_id for one in asked]
        run_ids = {one.fiche_id: one.run_id for one in asked if one.run_id is not None}
        message = f"{len(keys)} transcription jobs queued"
        return said(message=message, fiche_ids=fiche_ids, event_ids=keys, run_ids=run_ids)

    return once(work)


@router.post(OF_FICHE, response_model=TranscriptionQueued, responses=refusals(404, 409))
def ask(
    fiche_id: FicheInPath,
    services: TheServices,
    once: DoneOnce,
    priority: Annotated[str, Query(description="high, normal or low; anything else is normal.")] = "normal",
) -> Response:
    """Ask for transcripts of a fiche's calls that have none yet."""

    def work() -> Response:
        [asked] = request_transcriptions(
            [fiche_id],
            priority=priority_of(priority),
            batch=False,
            database=services.database,
            clock=services.clock,
        )
        return said(message="Transcription job queued", fiche_id=fiche_id, event_id=asked.key, run_id=asked.run_id)

    return once(work)


@router.get(f"{OF_FICHE}/status", response_model=Answer[TranscriptionStanding], responses=refusals(404))
def status(fiche_id: FicheInPath, services: TheServices) -> Response:
    """Show which of a fiche's calls have a transcript, and its last run: counts, and who works on each recording."""
    with services.database.reading() as session:
        document = transcription_status(session, fiche_id)
    return answer(TranscriptionStanding.model_validate(document).model_dump(mode="json", by_alias=True))


@router.get(
    f"{OF_FICHE}/logs",
    response_model=TranscriptionLines,
    responses=refusals(404),
    openapi_extra=asked_with(LogQuery),
)
def logs(fiche_id: FicheInPath, request: Request, services: TheServices) -> Response:
    """What was written down while the fiche's calls were transcribed, oldest first."""
    chosen = read_log_query(dict(request.query_params))
    with services.database.reading() as session:
        lines, total = transcription_logs(session, fiche_id, chosen, zone(services.settings.automation_timezone))
    trace, limit, offset = chosen.trace, chosen.limit, chosen.offset
    return answer(lines, count=len(lines), total=total, trace_id=trace, limit=limit, offset=offset)


@router.get(f"{OF_FICHE}/recordings/{{call_id}}", response_model=Answer[RecordingShown], responses=refusals(404))
def recording(fiche_id: FicheInPath, call_id: CallInPath, services: TheServices) -> Response:
    """Show one call with what was said in it."""
    with services.database.reading() as session:
        return answer(recording_document(session, fiche_id, call_id))
