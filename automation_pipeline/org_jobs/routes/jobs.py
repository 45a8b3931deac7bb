"""HTTP endpoints of jobs and job types, and those that agents call."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field
from starlette.responses import Response

from automation_pipeline.api.bodies import JsonObject, json_body
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import OncePerKey
from automation_pipeline.api.parameters import (
    AfterId,
    BackfillFilter,
    CallerDep,
    DatabaseDep,
    IdInPath,
    Limit,
    Offset,
    OrgFilter,
    OrgScheduleFilter,
    ServerFilter,
    ServicesDep,
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
from automation_pipeline.api.scopes import (
    CallOrigins,
    OptionalOrg,
    OrgContextDep,
    OrgScopeDep,
    RequiredOrg,
    check_job_type_permission,
    narrowed,
)
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.org_jobs.agents import (
    claim_jobs,
    list_held_jobs,
    report_progress,
    report_result,
    touch_heartbeat,
)
from automation_pipeline.org_jobs.jobs import cancel_job, request_job, retry_job
from automation_pipeline.org_jobs.models.agents import (
    AgentJob,
    ClaimInput,
    Greeting,
    Orders,
    ProgressReport,
    ResultReport,
)
from automation_pipeline.org_jobs.models.job_types import JobTypeCard, OwnTypeFields, OwnTypeInput
from automation_pipeline.org_jobs.models.jobs import (
    JobFilter,
    JobInput,
    JobMove,
    OrgJob,
    OrgJobRun,
    OrgJobsRunState,
    QueueCounts,
)
from automation_pipeline.org_jobs.models.organisations import Flag, Host
from automation_pipeline.org_jobs.organisations import (
    create_job_type,
    delete_job_type,
    update_job_type,
)
from automation_pipeline.org_jobs.queries.jobs import get_job, list_jobs, queues, transitions_of
from automation_pipeline.org_jobs.queries.organisations import list_job_types

Example = Mapping[str, object]
BACKUP: Example = {"type": "SAVE_BACKUP", "serverInstanceId": "12"}
WARM: Example = {
    "type": "HTTPS_CALL",
    "payload": {"url": "https://example.com/warm"},
    "priority": 2,
}
SUPERSEDED: Example = {"reason": "Done by hand"}
FIELDS: Example = {
    "summary": "Export the report of the day.",
    "isMutation": False,
    "limitSeconds": 600,
    "payloadSchema": {
        "type": "object",
        "required": ["format"],
        "properties": {"format": {"enum": ["csv", "pdf"]}},
    },
}
EXPORT: Example = {"name": "REPORT_EXPORT", **FIELDS}


class CancelJobInput(JsonModel):
    """`atOnce` ends the job now, without waiting for its worker or agent to stop."""

    reason: str | None = Field(default=None, max_length=1000)
    at_once: Flag = False


router = APIRouter(route_class=GuardedRoute, tags=["organisations' jobs"])
PATH = "/api/org-jobs"
ONE = f"{PATH}/{{org_job_id}}"
TYPES = f"{PATH}/types"
ONE_TYPE = f"{TYPES}/{{type_name}}"
TypeName = Annotated[
    str, Path(max_length=100, description="A type of the organisation.", examples=["REPORT_EXPORT"])
]


@router.get(TYPES, response_model=Answer[list[JobTypeCard]], responses=refusals(404))
def types(org_id: OptionalOrg, database: DatabaseDep) -> Response:
    """List the job types with their performer, time limit, payload schema and required permission.
    With an organisation, the list includes the types that it defines."""
    return answer(database.read(list_job_types, org_id))


@router.post(
    TYPES, status_code=201, response_model=Answer[JobTypeCard], responses=refusals(404, 409)
)
def create_type(
    body: Annotated[JsonObject, json_body(OwnTypeInput, export=EXPORT)],
    org_id: RequiredOrg,
    context: OrgContextDep,
    once: OncePerKey,
) -> Response:
    """Define a job type for the organisation's agents, or replace a built-in type."""
    return once(lambda: answer(create_job_type(body, org_id=org_id, **context), status=201))


@router.put(ONE_TYPE, response_model=Answer[JobTypeCard], responses=refusals(404))
def update_type(
    type_name: TypeName,
    body: Annotated[JsonObject, json_body(OwnTypeFields, partial=True, export=FIELDS)],
    org_id: RequiredOrg,
    context: OrgContextDep,
) -> Response:
    """Change a type that the organisation defines. Omitted fields stay."""
    return answer(update_job_type(type_name, body, org_id=org_id, **context))


@router.delete(ONE_TYPE, status_code=204, responses=refusals(404, 409))
def delete_type(type_name: TypeName, org_id: RequiredOrg, context: OrgContextDep) -> Response:
    """Delete a type that the organisation defines, unless schedules or open jobs use it."""
    delete_job_type(type_name, org_id=org_id, **context)
    return Response(status_code=204)


def _chosen(
    org: OrgFilter = None,
    status: Annotated[
        OrgJobsRunState | None, Query(description="Only jobs with this status.")
    ] = None,
    type: Annotated[  # noqa: A002  its name in the query
        str | None, Query(max_length=100, description="Only jobs of this type.")
    ] = None,
    schedule: OrgScheduleFilter = None,
    server: ServerFilter = None,
    batch: BackfillFilter = None,
) -> JobFilter:
    return JobFilter(
        org_id=org,
        status=status,
        type=type,
        schedule_id=schedule,
        server_instance_id=server,
        batch_id=batch,
    )


@router.get(PATH, response_model=Listing[OrgJob])
def list_(
    within: OrgScopeDep,
    database: DatabaseDep,
    chosen: Annotated[JobFilter, Depends(_chosen)],
    limit: Limit = 20,
    offset: Offset = 0,
) -> Response:
    """List the jobs with their runs and attempts, newest first."""
    return listed(
        database.read(list_jobs, within, chosen=chosen, limit=limit, offset=offset),
        limit,
        offset,
    )


@router.post(PATH, status_code=201, response_model=Answer[OrgJob], responses=refusals(404, 409))
def create(
    body: Annotated[JsonObject, json_body(JobInput, backup=BACKUP, warm=WARM)],
    org_id: RequiredOrg,
    caller: CallerDep,
    origins: CallOrigins,
    context: OrgContextDep,
    once: OncePerKey,
) -> Response:
    """Request a job without a schedule. Some types require an additional permission: see
    `/api/org-jobs/types`."""
    check_job_type_permission(caller, body.get("type"))
    return once(
        lambda: answer(
            request_job(body, org_id=org_id, call_origins=origins, **context), status=201
        )
    )


@router.get(f"{PATH}/queues", response_model=Answer[list[QueueCounts]])
def standings(within: OrgScopeDep, services: ServicesDep, org: OrgFilter = None) -> Response:
    """Show the queue of each organisation: the number of its waiting and running jobs."""
    scope = narrowed(within, org)
    if scope is None:
        return answer([])
    return answer(services.database.read(queues, scope, services.clock.now()))


@router.get(ONE, response_model=Answer[OrgJob], responses=refusals(404))
def show(org_job_id: IdInPath, within: OrgScopeDep, database: DatabaseDep) -> Response:
    """Show one job with its runs and their attempts."""
    return answer(database.read(get_job, org_job_id, within))


@router.get(f"{ONE}/log", response_model=Following[JobMove], responses=refusals(404))
def log(
    org_job_id: IdInPath,
    within: OrgScopeDep,
    database: DatabaseDep,
    after: AfterId = 0,
    limit: Limit = 100,
) -> Response:
    """List every state change of its runs, with actor, reason and time, oldest first."""
    return following(database.read(transitions_of, org_job_id, within, limit, after), limit)


@router.post(f"{ONE}/cancel", response_model=Answer[OrgJob], responses=refusals(404, 409))
def cancel(
    org_job_id: IdInPath,
    given: Annotated[
        CancelJobInput,
        json_body(CancelJobInput, "Invalid cancel data", required=False, superseded=SUPERSEDED),
    ],
    context: OrgContextDep,
) -> Response:
    """Cancel a job that has not started, or ask its worker or agent to stop. With `atOnce`, the job
    ends without waiting for them."""
    return answer(cancel_job(org_job_id, reason=given.reason, at_once=given.at_once, **context))


@router.post(
    f"{ONE}/retry", status_code=202, response_model=Answer[OrgJob], responses=refusals(404, 409)
)
def retry(
    org_job_id: IdInPath,
    caller: CallerDep,
    context: OrgContextDep,
    once: OncePerKey,
) -> Response:
    """Retry a job that failed or was cancelled: a new run with all its attempts."""
    check_job_type_permission(
        caller, context["database"].read(get_job, org_job_id, context["within"]).type
    )
    return once(lambda: answer(retry_job(org_job_id, **context), status=202))


GREETING: Example = {"agentVersion": "1.4.0"}
CLAIM: Example = {"most": 4}
HALFWAY: Example = {
    "attemptNo": 1,
    "leaseToken": 1,
    "percent": 50,
    "message": "Copying the save",
}
SUCCEEDED: Example = {
    "attemptNo": 1,
    "leaseToken": 1,
    "status": "success",
    "result": {"backup": "nightly-2026-05-04", "bytes": 7340032},
    "logRef": "/var/log/agent/12-1.log",
}
FAILED: Example = {
    "attemptNo": 1,
    "leaseToken": 1,
    "status": "failed",
    "errorCode": "DISK_FULL",
    "error": "No space is left on /srv/saves.",
}
STOPPED: Example = {"attemptNo": 1, "leaseToken": 1, "status": "cancelled"}


agents = APIRouter(route_class=GuardedRoute, tags=["agents"])
AGENT_HOST = "/api/agents/hosts/{host_id}"
AGENT_RUN = "/api/agents/runs/{job_run_id}"


@agents.post(f"{AGENT_HOST}/heartbeat", response_model=Answer[Host], responses=refusals(404))
def heartbeat(
    host_id: IdInPath,
    greeting: Annotated[
        Greeting, json_body(Greeting, "Invalid heartbeat", required=False, version=GREETING)
    ],
    database: DatabaseDep,
    within: OrgScopeDep,
) -> Response:
    """Record a heartbeat of the host's agent. Every other call of an agent counts as a heartbeat too."""
    return answer(
        touch_heartbeat(
            host_id, within=within, database=database, agent_version=greeting.agent_version
        )
    )


@agents.post(f"{AGENT_HOST}/claim", response_model=Answer[list[AgentJob]], responses=refusals(404))
def claim(
    host_id: IdInPath,
    wanted: Annotated[
        ClaimInput, json_body(ClaimInput, "Invalid claim", required=False, some=CLAIM)
    ],
    services: ServicesDep,
    within: OrgScopeDep,
) -> Response:
    """Claim jobs, most urgent first: one changing job at a time, and up to eight read-only jobs.
    The list is empty when no job is due."""
    return answer(
        claim_jobs(
            host_id,
            within=within,
            database=services.database,
            clock=services.clock,
            most=wanted.most,
        )
    )


@agents.get(f"{AGENT_HOST}/runs", response_model=Answer[list[AgentJob]], responses=refusals(404))
def runs(host_id: IdInPath, database: DatabaseDep, within: OrgScopeDep) -> Response:
    """List the jobs that the host's agent holds, oldest first, so that a restarted agent can continue them."""
    return answer(list_held_jobs(host_id, within=within, database=database))


@agents.post(f"{AGENT_RUN}/progress", response_model=Answer[Orders], responses=refusals(404, 409))
def progress(
    job_run_id: IdInPath,
    body: Annotated[JsonObject, json_body(ProgressReport, halfway=HALFWAY)],
    services: ServicesDep,
    within: OrgScopeDep,
) -> Response:
    """Report the progress of an attempt, every 30 seconds. The first report starts the attempt, and
    each report extends its lease to 180 seconds. After a 409, the agent stops working on the
    attempt."""
    return answer(
        report_progress(
            job_run_id, body, within=within, database=services.database, clock=services.clock
        )
    )


@agents.post(f"{AGENT_RUN}/result", response_model=Answer[OrgJobRun], responses=refusals(404, 409))
def result(
    job_run_id: IdInPath,
    body: Annotated[
        JsonObject, json_body(ResultReport, succeeded=SUCCEEDED, failed=FAILED, stopped=STOPPED)
    ],
    services: ServicesDep,
    within: OrgScopeDep,
) -> Response:
    """Report the result of an attempt. A repeated report has the same response. A late report is a
    409 and is stored."""
    return answer(
        report_result(
            job_run_id,
            body,
            within=within,
            database=services.database,
            clock=services.clock,
            meter=services.meter,
        )
    )
