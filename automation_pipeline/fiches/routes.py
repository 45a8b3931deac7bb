"""HTTP endpoints of fiches: ranges of days with their fetch jobs, the sales of a day, and one fiche with its
details, status and recordings."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.api.bodies import JsonObject, json_body
from automation_pipeline.api.errors import AuthorizationError, upstream_errors
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.parameters import (
    CallerDep,
    DatabaseDep,
    FicheInPath,
    Offset,
    ReachDep,
    ServicesDep,
    day_parameters,
)
from automation_pipeline.api.permissions import Entity
from automation_pipeline.api.responses import (
    Answer,
    CamelModel,
    Listing,
    answer,
    answer_with,
    listed,
    refusals,
)
from automation_pipeline.api.scopes import check_in_reach, fiches_with_visible_recordings
from automation_pipeline.audits.queries.documents import (
    fiche_status,
    fiche_statuses,
    fiches_with_audits,
)
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Action, Caller, Permission
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Instant, JsonModel, parse
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.fiches.fetch_jobs import RangeRequest, RangeStatus, request_range
from automation_pipeline.fiches.mirror import read_fiche, search_day
from automation_pipeline.fiches.models.days import parse_day
from automation_pipeline.fiches.models.fetch_jobs import JobStatus, JobWebhook, day_texts
from automation_pipeline.fiches.models.fiches import SalesListEntry
from automation_pipeline.fiches.queries.fetch_jobs import job_document, list_jobs, poll_document
from automation_pipeline.fiches.queries.fiches import (
    Document,
    FichePage,
    cache_row,
    fiche_document,
    recordings_of,
)
from automation_pipeline.transcription.queries.recordings import transcription_status

SOME: Mapping[str, object] = {"ficheIds": ["1900417", "1900418"]}


class _Shown(CamelModel):
    model_config = ConfigDict(extra="forbid")


class TranscriptionPart(_Shown):
    total: int
    transcribed: int
    pending: int
    percentage: int = Field(ge=0, le=100)
    is_complete: bool
    last_transcribed_at: Instant | None


class AuditInShort(_Shown):
    id: str
    audit_config_id: str
    audit_config_name: str
    status: Literal["pending", "running", "completed", "failed"]
    score_percentage: float | None
    niveau: str | None
    is_compliant: bool | None
    error_message: str | None
    created_at: Instant
    completed_at: Instant | None


class AuditPart(_Shown):
    """The latest audit of each configuration."""

    total: int
    completed: int
    pending: int
    running: int
    compliant: int
    non_compliant: int
    average_score: float | None
    latest_audit: AuditInShort | None
    audits: list[AuditInShort]


class FicheStatus(_Shown):
    fiche_id: str
    has_data: bool
    transcription: TranscriptionPart
    audit: AuditPart


class _FicheHead(_Shown):
    fiche_id: str
    groupe: str | None
    prospect_nom: str | None
    prospect_prenom: str | None
    recordings_count: int


class CacheRow(_FicheHead):
    fetched_at: Instant
    expires_at: Instant


class CallInShort(_Shown):
    id: str
    call_id: str
    has_transcription: bool
    transcribed_at: Instant | None
    start_time: Instant
    duration_seconds: int


class FicheRow(_Shown):
    fiche_id: str
    groupe: str | None
    agence_nom: str | None
    prospect_nom: str | None
    prospect_prenom: str | None
    prospect_email: str | None
    prospect_tel: str | None
    fetched_at: Instant
    created_at: Instant | None
    transcription: TranscriptionPart
    audit: AuditPart
    recordings: list[CallInShort]


class DayShown(_Shown):
    """`total` is the number of fiches sold; the page contains some of them."""

    date: str = Field(examples=["2026-02-03"])
    total: int
    fiches: list[FicheRow]


class CacheCoverage(_Shown):
    dates_with_data: list[str]
    dates_missing: list[str]


class RangeMeta(_Shown):
    complete: bool
    partial: bool
    background_job_id: str | None = None
    total_days_requested: int
    days_fetched: int
    days_remaining: int
    days_cached: int
    cache_coverage: CacheCoverage


class RangeShown(_Shown):
    success: Literal[True] = True
    start_date: str = Field(examples=["2026-02-01"])
    end_date: str = Field(examples=["2026-02-07"])
    total: int
    fiches: list[FicheRow]
    meta: RangeMeta


class ListedCall(BaseModel):
    call_id: str
    start_time: Instant
    duration_seconds: int
    direction: str
    from_number: str
    to_number: str
    answered: bool
    recording_url: str | None = Field(description="Only for callers who may read recordings.")


class ListedStatus(_Shown):
    has_data: bool
    transcription: TranscriptionPart
    audit: AuditPart


class ListedFiche(BaseModel):
    """A fiche of the CRM's list, with the CRM's field names."""

    id: str
    cle: str | None
    nom: str
    prenom: str
    telephone: str
    telephone_2: str | None
    email: str
    statut: str
    date_insertion: Instant | None
    date_modification: Instant | None
    recordings: list[ListedCall]
    status: ListedStatus | None = None


class Found(BaseModel):
    fiches: list[ListedFiche]
    total: int


class FicheDetails(BaseModel):
    """The complete mirrored fiche; the sections have the CRM's names."""

    model_config = ConfigDict(extra="allow")

    fiche_id: str
    groupe: str | None
    state: Literal["full details", "sales list only", "not found"]
    details_fetched_at: Instant | None
    information: dict[str, Any] | None  # Any: JSON
    prospect: dict[str, Any] | None
    recordings: list[dict[str, Any]]


class RecordingRow(_Shown):
    id: str
    fiche_id: str
    call_id: str
    recording_url: str | None
    recording_date: str | None
    recording_time: str | None
    uuid: str | None
    start_time: Instant
    duration_seconds: int
    direction: str
    from_number: str
    to_number: str
    answered: bool
    vanished_at: Instant | None
    has_transcription: bool
    transcription_id: str | None
    transcription_text: str | None
    transcription_language_code: str | None
    transcription_language_probability: float | None
    transcribed_at: Instant | None


class RecordingList(Answer[list[RecordingRow]]):
    count: int


class FicheStatusInput(JsonModel):
    fiche_ids: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...] = Field(
        max_length=1000
    )


def parse_status_request(body: Mapping[str, object]) -> FicheStatusInput:
    if not isinstance(body.get("ficheIds"), list):
        raise InvalidInputError("ficheIds must be an array", (("ficheIds", "must be an array"),))
    return parse(FicheStatusInput, body, "Invalid ficheIds")


class JobStateShown(_Shown):
    """Each day of the range is completed, remaining or failed."""

    status: JobStatus
    progress: int = Field(ge=0, le=100)
    completed_days: int
    total_days: int
    total_fiches: int
    dates_completed: list[str]
    dates_remaining: list[str]
    dates_failed: list[str]
    error: str | None


class JobShown(JobStateShown):
    job_id: str
    start_date: str
    end_date: str
    webhook_url: str | None
    created_by: str
    created_at: Instant
    updated_at: Instant
    completed_at: Instant | None


class DeliveryShown(_Shown):
    id: str
    event: Literal["progress", "complete", "failed"]
    status: Literal["pending", "sent", "failed"]
    status_code: int | None
    response_body: str | None
    last_error: str | None
    attempt: int
    next_retry_at: Instant | None
    created_at: Instant
    sent_at: Instant | None


class JobDetail(JobShown):
    """A job with the last deliveries of its webhook, newest first."""

    webhook_deliveries: list[DeliveryShown]


class FicheInShort(_FicheHead):
    created_at: Instant | None


class PolledData(JobStateShown):
    current_fiches_count: int
    partial_data: list[FicheInShort]
    data_url: str


class Polled(_Shown):
    success: Literal[True] = True
    job_id: str
    event: Literal["progress", "complete", "failed"]
    timestamp: Instant
    data: PolledData


router = APIRouter(route_class=GuardedRoute, tags=["fiches"])
PATH = "/api/fiches"
OF_FICHE = f"{PATH}/{{fiche_id}}"
MISSING_DATE = "Missing or invalid date parameter (YYYY-MM-DD required)"
WRONG_DATE = "Invalid date format. Use YYYY-MM-DD"

MostFiches = Annotated[int, Query(ge=1, le=10_000, description="The maximum number of fiches.")]
FirstFiche = Annotated[
    int, Query(ge=0, le=1_000_000_000, description="The number of fiches to skip.")
]
JobId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=["0e6f4c1e-6f0c-4f7e-9c1a-3a7d7b1f2a10"])
]
JobIdInQuery = Annotated[
    str, Query(pattern=r"^[A-Za-z0-9-]{1,64}$", alias="jobId", description="The job.")
]


@router.get(
    f"{PATH}/status/by-date-range",
    response_model=RangeShown,
    openapi_extra=day_parameters(
        startDate="The first day.", endDate="The last day; days after today are ignored."
    ),
)
def by_date_range(  # noqa: PLR0913  one parameter per query field
    request: Request,
    caller: CallerDep,
    reach: ReachDep,
    services: ServicesDep,
    *,
    webhook_url: Annotated[str | None, Query(alias="webhookUrl", max_length=2000)] = None,
    webhook_secret: Annotated[
        str | None, Query(alias="webhookSecret", max_length=500, pattern=r"^[^\x00]*$")
    ] = None,
    refresh: Annotated[
        bool, Query(description="Fetch every day again; needs fiches.write.")
    ] = False,
    limit: MostFiches = 10_000,
    offset: FirstFiche = 0,
) -> Response:
    """List the known fiches of a range of days. A background job fetches the missing days, and
    notifies the webhook, if the request names one, of its progress and end."""
    if refresh and caller.reach(Permission.FICHES, Action.WRITE) is None:
        raise AuthorizationError("Missing permission")
    requested = RangeRequest(
        start=parse_day(request.query_params.get("startDate"), WRONG_DATE),
        end=parse_day(request.query_params.get("endDate"), WRONG_DATE),
        reach=reach,
        refresh=refresh,
        webhook=JobWebhook(webhook_url, webhook_secret or None) if webhook_url else None,
    )
    status = request_range(
        requested,
        database=services.database,
        clock=services.clock,
        zone=zone(services.settings.automation_timezone),
        allowed_origins=services.settings.webhook_allowed_origins,
    )
    fiches, total = services.database.read(
        fiches_with_audits, status.days, reach, FichePage(limit, offset)
    )
    last = status.days[-1] if status.days else requested.end
    return answer_with(
        startDate=requested.start.isoformat(),
        endDate=last.isoformat(),
        total=total,
        fiches=fiches,
        meta=_meta(status),
    )


@router.get(f"{PATH}/webhooks/fiches", response_model=Polled, responses=refusals(404))
def poll(job_id: JobIdInQuery, reach: ReachDep, database: DatabaseDep) -> Response:
    """Show the current webhook payload of a job, with the first fiches that it has fetched."""
    polled = database.read(poll_document, job_id, reach)
    return answer_with(
        jobId=polled["jobId"],
        event=polled["event"],
        timestamp=polled["timestamp"],
        data=polled["data"],
    )


@router.get(f"{PATH}/jobs", response_model=Listing[JobShown])
def jobs(
    reach: ReachDep,
    database: DatabaseDep,
    status: JobStatus | None = None,
    limit: Annotated[int, Query(ge=1, le=100, description="The maximum number of jobs.")] = 20,
    offset: Offset = 0,
) -> Response:
    """List the fetch jobs that the caller has requested, newest first."""
    return listed(database.read(list_jobs, reach, FichePage(limit, offset), status), limit, offset)


@router.get(f"{PATH}/jobs/{{job_id}}", response_model=Answer[JobDetail], responses=refusals(404))
def job(job_id: JobId, reach: ReachDep, database: DatabaseDep) -> Response:
    """Show one fetch job with the last deliveries of its webhook."""
    return answer(database.read(job_document, job_id, reach))


def _meta(status: RangeStatus) -> dict[str, object]:
    job = status.job
    remaining = len(job.remaining) if job else len(status.missing)
    return {
        "complete": job is None,
        "partial": job is not None,
        **({"backgroundJobId": job.id} if job else {}),
        "totalDaysRequested": len(status.days),
        "daysFetched": len(status.days) - remaining,
        "daysRemaining": remaining,
        "daysCached": len(status.known),
        "cacheCoverage": {
            "datesWithData": day_texts(status.known),
            "datesMissing": day_texts(status.missing),
        },
    }


@router.get(
    f"{PATH}/search",
    response_model=Found,
    responses=refusals(502),
    openapi_extra=day_parameters(date="The day."),
)
async def search(
    request: Request,
    caller: CallerDep,
    reach: ReachDep,
    services: ServicesDep,
    include_status: Annotated[
        bool, Query(alias="includeStatus", description="Include the status of each fiche.")
    ] = True,
) -> Response:
    """Fetch the sales of a day from the CRM."""
    day = parse_day(request.query_params.get("date"), MISSING_DATE)
    source, database = services.crm, services.database
    with upstream_errors():
        sold = await search_day(
            day,
            reach,
            database=database,
            source=source,
            semaphore=services.sales_list_semaphore,
        )
    fiche_ids = [fiche.fiche_id for fiche in sold]
    with_audio = await run_in_threadpool(
        database.read, fiches_with_visible_recordings, caller, fiche_ids
    )
    fiches = [sales_document(fiche, with_audio=fiche.fiche_id in with_audio) for fiche in sold]
    if include_status:
        statuses = await run_in_threadpool(database.read, fiche_statuses, fiche_ids, reach)
        for fiche in fiches:
            status = statuses[str(fiche["id"])]
            fiche["status"] = {name: status[name] for name in status if name != "ficheId"}
    return JSONResponse({"fiches": fiches, "total": len(fiches)})


@router.post(f"{PATH}/status/batch", response_model=Answer[dict[str, FicheStatus]])
def batch(
    body: Annotated[JsonObject, json_body(FicheStatusInput, some=SOME)],
    reach: ReachDep,
    database: DatabaseDep,
) -> Response:
    """List the status of these fiches. Hidden and unknown fiches have an empty status."""
    return answer(database.read(fiche_statuses, parse_status_request(body).fiche_ids, reach))


@router.get(
    f"{PATH}/status/by-date",
    response_model=Answer[DayShown],
    openapi_extra=day_parameters(date="The day of the sales."),
)
def by_date(
    request: Request,
    reach: ReachDep,
    database: DatabaseDep,
    limit: MostFiches = 10_000,
    offset: FirstFiche = 0,
) -> Response:
    """List the stored fiches that were sold on a day, without a call to the CRM."""
    day = parse_day(request.query_params.get("date"), WRONG_DATE)
    fiches, total = database.read(fiches_with_audits, [day], reach, FichePage(limit, offset))
    return answer({"date": day.isoformat(), "total": total, "fiches": fiches})


@router.get(OF_FICHE, response_model=FicheDetails, responses=refusals(404, 502))
async def show(
    fiche_id: FicheInPath,
    caller: CallerDep,
    reach: ReachDep,
    services: ServicesDep,
    refresh: Annotated[
        bool, Query(description="Fetch the fiche from the CRM now; needs fiches.write.")
    ] = False,
    include_mail_devis: Annotated[
        bool, Query(description="Include the offer that was mailed.")
    ] = True,
) -> Response:
    """Show one fiche. Only callers who may read recordings see their addresses."""
    if refresh:
        await run_in_threadpool(_check_may_refresh, fiche_id, caller, services)
    source = services.crm
    with upstream_errors():
        document = await read_fiche(
            fiche_id,
            reach,
            refresh=refresh,
            database=services.database,
            source=source,
            clock=services.clock,
        )
    if not include_mail_devis:
        document = without_raw_field(document, "mail_devis")
    if not await run_in_threadpool(
        services.database.read, fiches_with_visible_recordings, caller, [fiche_id]
    ):
        document = without_recordings_audio(document)
    return JSONResponse(document)


@router.get(f"{OF_FICHE}/cache", response_model=Answer[CacheRow], responses=refusals(404))
def cache(fiche_id: FicheInPath, reach: ReachDep, database: DatabaseDep) -> Response:
    """Show a summary of the stored data of a fiche."""
    return answer(database.read(cache_row, fiche_id, reach))


@router.get(f"{OF_FICHE}/status", response_model=Answer[FicheStatus], responses=refusals(404))
def status(fiche_id: FicheInPath, reach: ReachDep, database: DatabaseDep) -> Response:
    """Show the status of one fiche."""
    return answer(database.read(fiche_status, fiche_id, reach))


@router.get(
    "/api/recordings/{fiche_id}",
    response_model=RecordingList,
    responses=refusals(404),
    tags=["recordings"],
)
def recordings(fiche_id: FicheInPath, reach: ReachDep, database: DatabaseDep) -> Response:
    """List the recordings of a fiche, oldest first."""
    rows = database.read(recordings_of, fiche_id, reach)
    return answer(rows, count=len(rows))


def _check_may_refresh(fiche_id: str, caller: Caller, services: Services) -> None:
    writes = caller.reach(Permission.FICHES, Action.WRITE)
    if writes is None:
        raise AuthorizationError("Missing permission")
    if not writes.is_whole:
        check_in_reach(Entity.FICHE, fiche_id, writes, services.database)


@router.get(
    "/api/fiches/{fiche_id}/mirror",
    response_model=Answer[dict[str, Any]],  # Any: JSON
    responses=refusals(404),
)
def mirror(fiche_id: FicheInPath, caller: CallerDep, database: DatabaseDep) -> Response:
    """Show a stored fiche, without a call to the CRM. Only callers who may read recordings see
    their addresses and transcripts."""
    with database.reading() as session:
        document = fiche_document(session, fiche_id)
        transcription = transcription_status(session, fiche_id)
        if not fiches_with_visible_recordings(session, caller, [fiche_id]):
            document = without_recordings_audio(document)
    return answer({**document, "transcription": transcription})


def sales_document(fiche: SalesListEntry, *, with_audio: bool) -> Document:
    """The document of a fiche of a sales list. `with_audio` includes the URLs of its recordings."""
    return {
        "id": fiche.fiche_id,
        "cle": fiche.cle,
        "nom": fiche.nom,
        "prenom": fiche.prenom,
        "telephone": fiche.telephone,
        "telephone_2": fiche.telephone_2,
        "email": fiche.email,
        "statut": fiche.statut,
        "date_insertion": fiche.inserted_at and iso(fiche.inserted_at),
        "date_modification": fiche.modified_at and iso(fiche.modified_at),
        "recordings": [
            {
                "call_id": call.call_id,
                "start_time": iso(call.started_at),
                "duration_seconds": call.duration_seconds,
                "direction": call.direction,
                "from_number": call.from_number,
                "to_number": call.to_number,
                "answered": call.answered,
                "recording_url": (call.url or None) if with_audio else None,
            }
            for call in fiche.recordings
        ],
    }


def without_recordings_audio(document: Mapping[str, object]) -> Document:
    """The document without the URLs and the transcripts of recordings."""
    hidden = dict.fromkeys(("recording_url", "transcription_text"))
    recordings = cast("list[Document]", document["recordings"])
    return {
        **without_raw_field(document, "recordings"),
        "recordings": [{**recording, **hidden} for recording in recordings],
    }


def without_raw_field(document: Mapping[str, object], name: str) -> Document:
    """The document without one of the fields that have no column."""
    raw = cast("Mapping[str, object]", document["raw_data"])
    return {**document, "raw_data": {key: raw[key] for key in raw if key != name}}
