"""HTTP endpoints of transcription: request, status, logs, transcripts."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from automation_pipeline.api.bodies import JsonObject, json_body
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import OncePerKey
from automation_pipeline.api.parameters import (
    DatabaseDep,
    FicheInPath,
    ReachDep,
    ServicesDep,
    query_parameters,
)
from automation_pipeline.api.responses import (
    Answer,
    CamelModel,
    Done,
    WorkflowLines,
    answer,
    answer_with,
    refusals,
)
from automation_pipeline.core.json_model import Instant
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.fiches.queries.mirror import check_visible
from automation_pipeline.transcription.queries.recordings import (
    LogQuery,
    parse_log_query,
    recording_document,
    transcription_logs,
    transcription_status,
)
from automation_pipeline.transcription.requests import (
    TranscriptionBatchInput,
    parse_batch,
    parse_priority,
    request_transcriptions,
)

BATCH_EXAMPLE: Mapping[str, object] = {"fiche_ids": ["1900417", "1900418"], "priority": "high"}


class RecordingTranscription(CamelModel):
    call_id: str
    has_transcription: bool
    transcription_id: str | None
    transcribed_at: Instant | None
    recording_date: str | None
    recording_time: str | None
    duration_seconds: int | None
    has_url: bool


class TranscriptionTask(CamelModel):
    """One recording of a run. `owner` holds the claim for another `seconds_left`;
    `again_in_seconds` is the time until the next attempt."""

    call_id: str
    state: Literal["waiting", "working", "done", "cached", "failed"]
    attempts: int
    error: str | None
    owner: str | None
    token: int
    seconds_left: float | None
    again_in_seconds: float | None


class TranscriptionRun(CamelModel):
    id: str
    state: Literal["processing", "finished", "finished with failures", "failed"]
    priority: Literal["high", "normal", "low"]
    target_total: int
    processed: int
    cached: int
    failed: int
    error: str | None
    started_at: Instant
    finished_at: Instant | None
    last_sign_of_life_at: Instant
    tasks: list[TranscriptionTask]


class FicheTranscription(CamelModel):
    fiche_id: str
    total: int
    transcribed: int
    pending: int
    percentage: int
    recordings: list[RecordingTranscription]
    run: TranscriptionRun | None = Field(description="The fiche's last run; null without a run.")


class TranscriptShown(BaseModel):
    text: str
    language_code: str | None
    language_probability: float | None
    words: list[dict[str, Any]] = Field(
        description="Always empty: only the text is stored, without single words."
    )


class RecordingShown(BaseModel):
    call_id: str
    recording_url: str | None = Field(description="Only for callers who may read recordings.")
    duration_seconds: int | None
    transcription_id: str | None
    has_transcription: bool
    transcription: TranscriptShown


class TranscriptionQueued(BaseModel):
    """`event_id` is the key of the request; `run_id` is the current or future run of the fiche."""

    success: Literal[True] = True
    message: Literal["Transcription job queued"]
    fiche_id: str
    event_id: str
    run_id: str


class TranscriptionsQueued(Done):
    """`event_ids` has the keys of the new requests; the other fiches are in progress or complete.
    `run_ids` has the current or future run per fiche."""

    fiche_ids: list[str]
    event_ids: list[str]
    run_ids: dict[str, str]


class TranscriptionLines(WorkflowLines):
    trace_id: str | None


router = APIRouter(route_class=GuardedRoute, tags=["transcriptions"])
PATH = "/api/transcriptions"
OF_FICHE = f"{PATH}/{{fiche_id}}"
CallInPath = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.:-]{1,200}$", examples=["880001"])]


@router.post(f"{PATH}/batch", response_model=TranscriptionsQueued, responses=refusals(404, 409))
def batch(
    body: Annotated[JsonObject, json_body(TranscriptionBatchInput, two=BATCH_EXAMPLE)],
    reach: ReachDep,
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Request transcripts of many fiches. A fiche is requested once per day, unless its last
    request ended without all transcripts."""
    requested = parse_batch(body)
    services.database.read(check_visible, reach, requested.fiche_ids)

    def work() -> Response:
        outcomes = request_transcriptions(
            requested.fiche_ids,
            priority=requested.priority,
            batch=True,
            database=services.database,
            clock=services.clock,
        )
        keys = [outcome.key for outcome in outcomes if outcome.key is not None]
        return answer_with(
            message=f"{len(keys)} transcription jobs queued",
            fiche_ids=[outcome.fiche_id for outcome in outcomes],
            event_ids=keys,
            run_ids={
                outcome.fiche_id: outcome.run_id
                for outcome in outcomes
                if outcome.run_id is not None
            },
        )

    return once(work)


@router.post(OF_FICHE, response_model=TranscriptionQueued, responses=refusals(404, 409))
def ask(
    fiche_id: FicheInPath,
    services: ServicesDep,
    once: OncePerKey,
    priority: Annotated[
        str, Query(description="high, normal or low; anything else is normal.")
    ] = "normal",
) -> Response:
    """Request the missing transcripts of a fiche's calls."""

    def work() -> Response:
        [outcome] = request_transcriptions(
            [fiche_id],
            priority=parse_priority(priority),
            batch=False,
            database=services.database,
            clock=services.clock,
        )
        return answer_with(
            message="Transcription job queued",
            fiche_id=fiche_id,
            event_id=outcome.key,
            run_id=outcome.run_id,
        )

    return once(work)


@router.get(
    f"{OF_FICHE}/status", response_model=Answer[FicheTranscription], responses=refusals(404)
)
def status(fiche_id: FicheInPath, database: DatabaseDep) -> Response:
    """Show which calls of a fiche have a transcript, and its last run: counts, and the worker of
    each recording."""
    return answer(
        FicheTranscription.model_validate(database.read(transcription_status, fiche_id)).model_dump(
            mode="json", by_alias=True
        )
    )


@router.get(
    f"{OF_FICHE}/logs",
    response_model=TranscriptionLines,
    responses=refusals(404),
    openapi_extra=query_parameters(LogQuery),
)
def logs(fiche_id: FicheInPath, request: Request, services: ServicesDep) -> Response:
    """List the log entries of the fiche's transcription, oldest first."""
    query = parse_log_query(dict(request.query_params))
    lines, total = services.database.read(
        transcription_logs, fiche_id, query, zone(services.settings.automation_timezone)
    )
    return answer(
        lines,
        count=len(lines),
        total=total,
        trace_id=query.trace,
        limit=query.limit,
        offset=query.offset,
    )


@router.get(
    f"{OF_FICHE}/recordings/{{call_id}}",
    response_model=Answer[RecordingShown],
    responses=refusals(404),
)
def recording(fiche_id: FicheInPath, call_id: CallInPath, database: DatabaseDep) -> Response:
    """Show one call with its transcript."""
    return answer(database.read(recording_document, fiche_id, call_id))
