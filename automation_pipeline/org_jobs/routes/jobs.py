"""Routes of organisations' jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.responses import Response

from automation_pipeline.api.bodies import OptionalBody, TheBody
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import DoneOnce
from automation_pipeline.api.openapi import takes
from automation_pipeline.api.parameters import (
    AfterId,
    IdInPath,
    Limit,
    Offset,
    OneBatch,
    OneOrg,
    OneSchedule,
    OneServer,
    TheCaller,
    TheServices,
)
from automation_pipeline.api.responses import (
    Answer,
    Following,
    Listing,
    answer,
    following,
    listed,
    refusals,
)
from automation_pipeline.api.scopes import AnOrg, TheWithin, check_may_have_done, narrowed
from automation_pipeline.core.json_model import JsonModel, as_document, parse
from automation_pipeline.org_jobs.jobs import cancel_job, request_job, retry_job
from automation_pipeline.org_jobs.models.jobs import (
    JobFilter,
    JobInput,
    JobMove,
    OrgJob,
    QueueCounts,
)
from automation_pipeline.org_jobs.models.organisations import Flag
from automation_pipeline.org_jobs.models.states import OrgJobsRunState
from automation_pipeline.org_jobs.queries.jobs import get_job, list_jobs, queues, transitions_of

BACKUP: Mapping[str, object] = {"type": "SAVE_BACKUP", "serverInstanceId": "12"}
WARM: Mapping[str, object] = {
    "type": "HTTPS_CALL",
    "payload": {"url": "https://example.com/warm"},
    "priority": 2,
}
SUPERSEDED: Mapping[str, object] = {"reason": "Done by hand"}


class CancelJobInput(JsonModel):
    """`atOnce`: it has ended now, whatever whoever is at it still does."""

    reason: str | None = Field(default=None, max_length=1000)
    at_once: Flag = False


router = APIRouter(route_class=GuardedRoute, tags=["organisations' jobs"])
PATH = "/api/org-jobs"
ONE = f"{PATH}/{{org_job_id}}"


@dataclass(frozen=True)
class JobChoice:
    """Which jobs are wanted."""

    org: OneOrg = None
    status: Annotated[OrgJobsRunState | None, Query(description="Only those that stand so.")] = None
    type: Annotated[str | None, Query(max_length=100, description="Only of this type.")] = None
    schedule: OneSchedule = None
    server: OneServer = None
    batch: OneBatch = None


@router.get(PATH, response_model=Listing[OrgJob])
def list_(
    within: TheWithin,
    services: TheServices,
    chosen: Annotated[JobChoice, Depends()],
    limit: Limit = 20,
    offset: Offset = 0,
) -> Response:
    """List the jobs with their runs and attempts, newest first."""
    wanted = JobFilter(
        org_id=chosen.org,
        status=chosen.status,
        type=chosen.type,
        schedule_id=chosen.schedule,
        server_instance_id=chosen.server,
        batch_id=chosen.batch,
    )
    with services.database.reading() as session:
        found = list_jobs(session, within, chosen=wanted, limit=limit, offset=offset)
    return listed(found, limit, offset)


@router.post(
    PATH,
    status_code=201,
    response_model=Answer[OrgJob],
    responses=refusals(404, 409),
    openapi_extra=takes(JobInput, backup=BACKUP, warm=WARM),
)
def create(
    body: TheBody,
    org_id: AnOrg,
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
    once: DoneOnce,
) -> Response:
    """Ask for a job without a schedule. Some types ask for a permission of their own:
    `/api/org-jobs/types`."""
    check_may_have_done(caller, body.get("type"))

    def work() -> Response:
        made = request_job(
            body,
            org_id=org_id,
            within=within,
            database=services.database,
            clock=services.clock,
            actor=caller.id,
            call_origins=services.settings.org_jobs_https_allowed_origins,
        )
        return answer(as_document(made), status=201)

    return once(work)


@router.get(f"{PATH}/queues", response_model=Answer[list[QueueCounts]])
def standings(within: TheWithin, services: TheServices, org: OneOrg = None) -> Response:
    """Show the queue of each organisation: how many of its jobs wait, and how many are at work."""
    reached = narrowed(within, org)
    if reached is None:
        return answer([])
    with services.database.reading() as session:
        return answer([as_document(one) for one in queues(session, reached, services.clock.now())])


@router.get(ONE, response_model=Answer[OrgJob], responses=refusals(404))
def show(org_job_id: IdInPath, within: TheWithin, services: TheServices) -> Response:
    """Show one job with its runs and their attempts."""
    with services.database.reading() as session:
        return answer(as_document(get_job(session, org_job_id, within)))


@router.get(f"{ONE}/log", response_model=Following[JobMove], responses=refusals(404))
def log(
    org_job_id: IdInPath,
    within: TheWithin,
    services: TheServices,
    after: AfterId = 0,
    limit: Limit = 100,
) -> Response:
    """Every move of its runs: from where to where, by whom, why and when. Oldest first."""
    with services.database.reading() as session:
        found = transitions_of(session, org_job_id, within, limit, after)
    return following(found, limit)


@router.post(
    f"{ONE}/cancel",
    response_model=Answer[OrgJob],
    responses=refusals(404, 409),
    openapi_extra=takes(CancelJobInput, required=False, superseded=SUPERSEDED),
)
def cancel(
    org_job_id: IdInPath,
    body: OptionalBody,
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
) -> Response:
    """Cancel a job that nobody has begun, or ask whoever is at it to stop; with `atOnce`, do not
    wait for them."""
    wish = parse(CancelJobInput, body, "Invalid cancel data")
    cancelled = cancel_job(
        org_job_id,
        within=within,
        database=services.database,
        clock=services.clock,
        actor=caller.id,
        reason=wish.reason,
        at_once=wish.at_once,
    )
    return answer(as_document(cancelled))


@router.post(
    f"{ONE}/retry", status_code=202, response_model=Answer[OrgJob], responses=refusals(404, 409)
)
def retry(
    org_job_id: IdInPath,
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
    once: DoneOnce,
) -> Response:
    """Do a job that failed or was cancelled again: another run of it, with all its attempts."""
    with services.database.reading() as session:
        check_may_have_done(caller, get_job(session, org_job_id, within).type)

    def work() -> Response:
        retried = retry_job(
            org_job_id,
            within=within,
            database=services.database,
            clock=services.clock,
            actor=caller.id,
        )
        return answer(as_document(retried), status=202)

    return once(work)
