"""HTTP endpoints of company requests."""

import json
import os
import socket
from typing import Annotated, cast

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import Attempts, DoneOnce
from automation_pipeline.api.openapi import takes
from automation_pipeline.api.parameters import IdInPath, Limit, Offset, TheCaller, TheServices
from automation_pipeline.bootstrap import Services
from automation_pipeline.enrichment.jobs import work_enrichment
from automation_pipeline.enrichment.models import (
    REQUESTS,
    EnrichmentAnswer,
    RequestInput,
    check_configured,
)
from automation_pipeline.enrichment.queries.requests import Requester
from automation_pipeline.enrichment.queries.views import get_request, jobs_of_request, list_requests
from automation_pipeline.enrichment.requests import (
    open_request,
    refresh_company,
    request_enrichment,
)
from automation_pipeline.enrichment.routes.contract import (
    CONTRACT_REFUSALS,
    CORRELATION_HEADER,
    DANONE,
    HEAD_OFFICE,
    EnrichmentJobsShown,
    RequestAnswered,
    RequestShown,
    RequestsShown,
    by_contract,
    contract_document,
    contract_response,
    replay_header,
    requester_of,
)

router = APIRouter(route_class=GuardedRoute, tags=["company requests"], responses=CONTRACT_REFUSALS)
PATH = "/v1/requests"
ONE = f"{PATH}/{{request_id}}"
SIREN = r"^[0-9]{9}$"
RUNNING = {
    202: {"model": RequestAnswered, "description": "The sources are still being asked: look again"}
}

OfSiren = Annotated[
    str | None,
    Query(pattern=SIREN, examples=["552032534"], description="Only those for this SIREN."),
]


@router.post(
    PATH,
    status_code=201,
    response_model=RequestAnswered,
    responses={**RUNNING, **by_contract(409, 422)},
    openapi_extra={
        **takes(RequestInput, danone=DANONE, head_office=HEAD_OFFICE),
        "parameters": [CORRELATION_HEADER],
    },
)
async def create(
    request: Request, body: TheBody, caller: TheCaller, services: TheServices, once: DoneOnce
) -> Response:
    """Ask for a company by its SIREN or SIRET. What is known and younger than 30 days is answered
    at once; else its sources are asked, for which this waits a second: 201 when that was enough,
    else 202 while it goes on."""
    registries, asking = services.registries, requester_of(caller)
    check_configured(registries.sources)
    attempts = cast("Attempts", request.app.state.attempts)

    def work() -> Response:
        our = services
        made = request_enrichment(
            body, asking, knobs=registries.knobs, database=our.database, clock=our.clock
        )
        return contract_response(_count_request(made, our))

    accepted = await run_in_threadpool(once, work)
    made = json.loads(bytes(accepted.body))
    if made["job_id"] is not None:
        owner = f"api:{socket.gethostname()}:{os.getpid()}"
        clock, database = services.clock, services.database
        job_id = int(made["job_id"])
        attempt = work_enrichment(
            job_id, registries=registries, database=database, clock=clock, owner=owner
        )
        await attempts.wait_for(attempt, registries.knobs.sync_seconds)
    document = await run_in_threadpool(
        _request_document, int(made["request_id"]), made["outcome"], asking, services
    )
    return contract_response(
        document, 202 if document["enrichment_running"] else 201, replay_header(accepted)
    )


@router.get(PATH, response_model=RequestsShown)
def list_(
    caller: TheCaller,
    services: TheServices,
    siren: OfSiren = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List the requests of the caller's tenant, newest first."""
    with services.database.reading() as session:
        found = list_requests(
            session, requester_of(caller).tenant_id, siren=siren, limit=limit, offset=offset
        )
    requests = [contract_document(one) for one in found]
    return contract_response(
        {"requests": requests, "count": len(requests), "limit": limit, "offset": offset}
    )


@router.get(
    ONE,
    response_model=RequestShown,
    responses=by_contract(404),
    openapi_extra={"parameters": [CORRELATION_HEADER]},
)
def show(request_id: IdInPath, caller: TheCaller, services: TheServices) -> Response:
    """Show one request with its company, as it is known now. What is stale or missing is refreshed
    meanwhile: then `enrichment_running` is true, and it is worth looking again."""
    database, clock, knobs = services.database, services.clock, services.registries.knobs
    return contract_response(
        contract_document(
            open_request(
                request_id, requester_of(caller), knobs=knobs, database=database, clock=clock
            )
        )
    )


@router.get(f"{ONE}/jobs", response_model=EnrichmentJobsShown, responses=by_contract(404))
def jobs(
    request_id: IdInPath, caller: TheCaller, services: TheServices, limit: Limit = 20
) -> Response:
    """The enrichments of the request's company, newest first: what each source came to, and what
    changed."""
    with services.database.reading() as session:
        found = [
            contract_document(one)
            for one in jobs_of_request(session, request_id, requester_of(caller).tenant_id, limit)
        ]
    return contract_response({"jobs": found, "count": len(found)})


@router.post(
    f"{ONE}:refresh-company",
    status_code=202,
    response_model=RequestAnswered,
    responses=by_contract(404, 409),
    openapi_extra={"parameters": [CORRELATION_HEADER]},
)
def refresh(
    request_id: IdInPath, caller: TheCaller, services: TheServices, once: DoneOnce
) -> Response:
    """Ask the sources anew, however fresh what is known is. Once in 15 minutes a company; one that
    failed, at any time."""
    asking = requester_of(caller)
    check_configured(services.registries.sources)

    def work() -> Response:
        database, clock, knobs = services.database, services.clock, services.registries.knobs
        made = refresh_company(request_id, asking, knobs=knobs, database=database, clock=clock)
        _count_request(made, services)
        return contract_response(_request_document(request_id, made.asked, asking, services), 202)

    return once(work)


def _count_request(made: EnrichmentAnswer, services: Services) -> dict[str, object]:
    """What a later look needs; and it is counted."""
    services.meter.count(REQUESTS, outcome=made.asked)
    job_id = None if made.job_id is None else str(made.job_id)
    return {"request_id": str(made.request_id), "job_id": job_id, "outcome": made.asked}


def _request_document(
    request_id: int, outcome: str, asking: Requester, services: Services
) -> dict[str, object]:
    with services.database.reading() as session:
        return {
            **contract_document(get_request(session, request_id, asking.tenant_id)),
            "outcome": outcome,
        }
