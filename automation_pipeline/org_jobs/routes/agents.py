"""Routes of agents."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from automation_pipeline.api.bodies import JsonObject, json_body
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.parameters import IdInPath, TheServices
from automation_pipeline.api.responses import Answer, answer, refusals
from automation_pipeline.api.scopes import TheWithin
from automation_pipeline.org_jobs.agents import (
    claim_jobs,
    list_held_jobs,
    report_progress,
    report_result,
    touch_heartbeat,
)
from automation_pipeline.org_jobs.models.agents import (
    AgentJob,
    ClaimInput,
    Greeting,
    Orders,
    ProgressReport,
    ResultReport,
)
from automation_pipeline.org_jobs.models.jobs import OrgJobRun
from automation_pipeline.org_jobs.models.organisations import Host

GREETING: Mapping[str, object] = {"agentVersion": "1.4.0"}
CLAIM: Mapping[str, object] = {"most": 4}
HALFWAY: Mapping[str, object] = {
    "attemptNo": 1,
    "leaseToken": 1,
    "percent": 50,
    "message": "Copying the save",
}
SUCCEEDED: Mapping[str, object] = {
    "attemptNo": 1,
    "leaseToken": 1,
    "status": "success",
    "result": {"backup": "nightly-2026-05-04", "bytes": 7340032},
    "logRef": "/var/log/agent/12-1.log",
}
FAILED: Mapping[str, object] = {
    "attemptNo": 1,
    "leaseToken": 1,
    "status": "failed",
    "errorCode": "DISK_FULL",
    "error": "No space is left on /srv/saves.",
}
STOPPED: Mapping[str, object] = {"attemptNo": 1, "leaseToken": 1, "status": "cancelled"}


router = APIRouter(route_class=GuardedRoute, tags=["agents"])
HOST = "/api/agents/hosts/{host_id}"
RUN = "/api/agents/runs/{job_run_id}"


@router.post(f"{HOST}/heartbeat", response_model=Answer[Host], responses=refusals(404))
def heartbeat(
    host_id: IdInPath,
    greeting: Annotated[
        Greeting, json_body(Greeting, "Invalid heartbeat", required=False, version=GREETING)
    ],
    services: TheServices,
    within: TheWithin,
) -> Response:
    """Record a heartbeat of the host's agent. Every other call of an agent counts as a heartbeat too."""
    return answer(
        touch_heartbeat(
            host_id, within=within, database=services.database, agent_version=greeting.agent_version
        )
    )


@router.post(f"{HOST}/claim", response_model=Answer[list[AgentJob]], responses=refusals(404))
def claim(
    host_id: IdInPath,
    wanted: Annotated[
        ClaimInput, json_body(ClaimInput, "Invalid claim", required=False, some=CLAIM)
    ],
    services: TheServices,
    within: TheWithin,
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


@router.get(f"{HOST}/runs", response_model=Answer[list[AgentJob]], responses=refusals(404))
def runs(host_id: IdInPath, services: TheServices, within: TheWithin) -> Response:
    """List the jobs that the host's agent holds, oldest first, so that a restarted agent can continue them."""
    return answer(list_held_jobs(host_id, within=within, database=services.database))


@router.post(f"{RUN}/progress", response_model=Answer[Orders], responses=refusals(404, 409))
def progress(
    job_run_id: IdInPath,
    body: Annotated[JsonObject, json_body(ProgressReport, halfway=HALFWAY)],
    services: TheServices,
    within: TheWithin,
) -> Response:
    """Report the progress of an attempt, every 30 seconds. The first report starts the attempt, and
    each report extends its lease to 180 seconds. After a 409, the agent stops working on the
    attempt."""
    return answer(
        report_progress(
            job_run_id, body, within=within, database=services.database, clock=services.clock
        )
    )


@router.post(f"{RUN}/result", response_model=Answer[OrgJobRun], responses=refusals(404, 409))
def result(
    job_run_id: IdInPath,
    body: Annotated[
        JsonObject, json_body(ResultReport, succeeded=SUCCEEDED, failed=FAILED, stopped=STOPPED)
    ],
    services: TheServices,
    within: TheWithin,
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
