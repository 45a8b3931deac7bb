"""Fiches of a range of days: what is known at once, and the job that brings the rest."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from automation_pipeline.api.context import Offset, TheCaller, TheReach, TheServices
from automation_pipeline.api.days import day_parameters
from automation_pipeline.api.envelope import Answer, Listing, answer, refusals, said
from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.routes.fiches import PATH, WRONG_DATE, FirstFiche, MostFiches
from automation_pipeline.api.schemas.fetch_jobs import JobDetail, JobShown, Polled
from automation_pipeline.api.schemas.fiches import RangeShown
from automation_pipeline.audits.store.fiche_audits import fiches_with_audits
from automation_pipeline.core.access import Action, Permission
from automation_pipeline.core.wall_clock import zone
from automation_pipeline.fiches.domain.day_range import read_day
from automation_pipeline.fiches.domain.fetch_events import written
from automation_pipeline.fiches.domain.fetch_job import JobStatus, Webhook
from automation_pipeline.fiches.stages.request_range import RangeStanding, RangeWish, request_range
from automation_pipeline.fiches.store.job_documents import job_document, list_jobs, poll_document
from automation_pipeline.fiches.store.status import Page

router = APIRouter(route_class=GuardedRoute, tags=["fiches"])
JobId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=["0e6f4c1e-6f0c-4f7e-9c1a-3a7d7b1f2a10"])]
JobAsked = Annotated[str, Query(pattern=r"^[A-Za-z0-9-]{1,64}$", alias="jobId", description="The job.")]


@router.get(
    f"{PATH}/status/by-date-range",
    response_model=RangeShown,
    openapi_extra=day_parameters(startDate="The first day.", endDate="The last day; none after today counts."),
)
def by_date_range(  # noqa: PLR0913  one parameter a query field
    request: Request,
    caller: TheCaller,
    reach: TheReach,
    services: TheServices,
    *,
    webhook_url: Annotated[str | None, Query(alias="webhookUrl", max_length=2000)] = None,
    webhook_secret: Annotated[str | None, Query(alias="webhookSecret", max_length=500, pattern=r"^[^\x00]*$")] = None,
    refresh: Annotated[bool, Query(description="Ask for every day again; needs fiches.write.")] = False,
    limit: MostFiches = 10_000,
    offset: FirstFiche = 0,
) -> Response:
    """The fiches of a range of days, as far as they are known. A job in the background brings the days that are
    missing; its webhook, if one is named, hears of its progress and end."""
    if refresh and caller.reach(Permission.FICHES, Action.WRITE) is None:
        raise AuthorizationError("Missing permission")
    wish = RangeWish(
        start=read_day(request.query_params.get("startDate"), WRONG_DATE),
        end=read_day(request.query_params.get("endDate"), WRONG_DATE),
        reach=reach,
        refresh=refresh,
        webhook=Webhook(webhook_url, webhook_secret or None) if webhook_url else None,
    )
    settings = services.settings
    standing = request_range(
        wish,
        database=services.database,
        clock=services.clock,
        zone=zone(settings.automation_timezone),
        allowed_origins=settings.webhook_allowed_origins,
    )
    with services.database.reading() as session:
        fiches, total = fiches_with_audits(session, standing.days, reach, Page(limit, offset))
    last = standing.days[-1] if standing.days else wish.end
    start, end, meta = wish.start.isoformat(), last.isoformat(), _meta(standing)
    return said(startDate=start, endDate=end, total=total, fiches=fiches, meta=meta)


@router.get(f"{PATH}/webhooks/fiches", response_model=Polled, responses=refusals(404))
def poll(job_id: JobAsked, reach: TheReach, services: TheServices) -> Response:
    """What a job's webhook would be told now, and the first of the fiches that it has brought."""
    with services.database.reading() as session:
        told = poll_document(session, job_id, reach)
    return said(jobId=told["jobId"], event=told["event"], timestamp=told["timestamp"], data=told["data"])


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
        found = list_jobs(session, reach, Page(limit, offset), status)
    return answer(found, count=len(found), limit=limit, offset=offset)


@router.get(f"{PATH}/jobs/{{job_id}}", response_model=Answer[JobDetail], responses=refusals(404))
def job(job_id: JobId, reach: TheReach, services: TheServices) -> Response:
    """Show one job over days, with the last deliveries of its webhook."""
    with services.database.reading() as session:
        return answer(job_document(session, job_id, reach))


def _meta(standing: RangeStanding) -> dict[str, object]:
    filed = standing.job
    remaining = len(filed.remaining) if filed else len(standing.missing)
    return {
        "complete": filed is None,
        "partial": filed is not None,
        **({"backgroundJobId": filed.id} if filed else {}),
        "totalDaysRequested": len(standing.days),
        "daysFetched": len(standing.days) - remaining,
        "daysRemaining": remaining,
        "daysCached": len(standing.known),
        "cacheCoverage": {"datesWithData": written(standing.known), "datesMissing": written(standing.missing)},
    }
