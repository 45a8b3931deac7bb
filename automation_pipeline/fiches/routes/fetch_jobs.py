"""HTTP endpoints of date ranges and the fetch jobs behind them."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.requests import Request
from starlette.responses import Response

from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.parameters import (
    Offset,
    TheCaller,
    TheReach,
    TheServices,
    day_parameters,
)
from automation_pipeline.api.responses import Answer, Listing, answer, refusals, said
from automation_pipeline.audits.queries.documents import fiches_with_audits
from automation_pipeline.core.access import Action, Permission
from automation_pipeline.core.json_model import Instant
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.fiches.events import day_texts
from automation_pipeline.fiches.fetch_jobs import RangeRequest, RangeStatus, request_range
from automation_pipeline.fiches.models.days import parse_day
from automation_pipeline.fiches.models.fetch_jobs import JobStatus, JobWebhook
from automation_pipeline.fiches.queries.fetch_jobs import job_document, list_jobs, poll_document
from automation_pipeline.fiches.queries.fiches import FichePage
from automation_pipeline.fiches.routes.fiches import (
    PATH,
    WRONG_DATE,
    FirstFiche,
    MostFiches,
    RangeShown,
)


class _Shown(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="forbid")


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
    """With the last deliveries of its webhook, the newest first."""

    webhook_deliveries: list[DeliveryShown]


class FicheInShort(_Shown):
    fiche_id: str
    groupe: str | None
    prospect_nom: str | None
    prospect_prenom: str | None
    recordings_count: int
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
        startDate="The first day.", endDate="The last day; none after today counts."
    ),
)
def by_date_range(  # noqa: PLR0913  one parameter a query field
    request: Request,
    caller: TheCaller,
    reach: TheReach,
    services: TheServices,
    *,
    webhook_url: Annotated[str | None, Query(alias="webhookUrl", max_length=2000)] = None,
    webhook_secret: Annotated[
        str | None, Query(alias="webhookSecret", max_length=500, pattern=r"^[^\x00]*$")
    ] = None,
    refresh: Annotated[
        bool, Query(description="Ask for every day again; needs fiches.write.")
    ] = False,
    limit: MostFiches = 10_000,
    offset: FirstFiche = 0,
) -> Response:
    """The fiches of a range of days, as far as they are known. A job in the background brings the
    days that are missing; its webhook, if one is named, hears of its progress and end."""
    if refresh and caller.reach(Permission.FICHES, Action.WRITE) is None:
        raise AuthorizationError("Missing permission")
    requested = RangeRequest(
        start=parse_day(request.query_params.get("startDate"), WRONG_DATE),
        end=parse_day(request.query_params.get("endDate"), WRONG_DATE),
        reach=reach,
        refresh=refresh,
        webhook=JobWebhook(webhook_url, webhook_secret or None) if webhook_url else None,
    )
    settings = services.settings
    status = request_range(
        requested,
        database=services.database,
        clock=services.clock,
        zone=zone(settings.automation_timezone),
        allowed_origins=settings.webhook_allowed_origins,
    )
    with services.database.reading() as session:
        fiches, total = fiches_with_audits(session, status.days, reach, FichePage(limit, offset))
    last = status.days[-1] if status.days else requested.end
    start, end, meta = requested.start.isoformat(), last.isoformat(), _meta(status)
    return said(startDate=start, endDate=end, total=total, fiches=fiches, meta=meta)


@router.get(f"{PATH}/webhooks/fiches", response_model=Polled, responses=refusals(404))
def poll(job_id: JobIdInQuery, reach: TheReach, services: TheServices) -> Response:
    """What a job's webhook would be told now, and the first of the fiches that it has brought."""
    with services.database.reading() as session:
        polled = poll_document(session, job_id, reach)
    return said(
        jobId=polled["jobId"],
        event=polled["event"],
        timestamp=polled["timestamp"],
        data=polled["data"],
    )


@router.get(f"{PATH}/jobs", response_model=Listing[JobShown])
def jobs(
    reach: TheReach,
    services: TheServices,
    status: JobStatus | None = None,
    limit: Annotated[int, Query(ge=1, le=100, description="At most so many.")] = 20,
    offset: Offset = 0,
) -> Response:
    """List the jobs over days that the caller has asked for, newest first."""
    with services.database.reading() as session:
        found = list_jobs(session, reach, FichePage(limit, offset), status)
    return answer(found, count=len(found), limit=limit, offset=offset)


@router.get(f"{PATH}/jobs/{{job_id}}", response_model=Answer[JobDetail], responses=refusals(404))
def job(job_id: JobId, reach: TheReach, services: TheServices) -> Response:
    """Show one job over days, with the last deliveries of its webhook."""
    with services.database.reading() as session:
        return answer(job_document(session, job_id, reach))


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
