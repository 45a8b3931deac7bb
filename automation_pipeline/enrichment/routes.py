"""HTTP endpoints of company requests, companies and sources under `/v1`. Fields have the names of the contract."""

import json
import os
import socket
from collections.abc import Mapping
from typing import Annotated, cast
from uuid import uuid4

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.api.bodies import JsonObject, json_body
from automation_pipeline.api.errors import CORRELATION_ID
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import OncePerKey
from automation_pipeline.api.parameters import (
    CallerDep,
    DatabaseDep,
    IdInPath,
    Limit,
    Offset,
    ServicesDep,
)
from automation_pipeline.api.responses import COMMON, refusals
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller
from automation_pipeline.core.background import BackgroundWork
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import Instant
from automation_pipeline.core.logs import correlation_id
from automation_pipeline.enrichment.jobs import work_enrichment
from automation_pipeline.enrichment.models import (
    DEFAULT_TENANT,
    REQUESTS,
    CompanyRequestShown,
    CompanyShown,
    ContractModel,
    EnrichmentAnswer,
    EnrichmentJobShown,
    Requester,
    RequestInput,
    RequestOutcome,
    RequestShown,
    SourceApi,
    check_configured,
)
from automation_pipeline.enrichment.queries.jobs import jobs_of_request
from automation_pipeline.enrichment.queries.requests import (
    find_companies,
    get_request,
    list_requests,
)
from automation_pipeline.enrichment.requests import (
    open_request,
    refresh_company,
    request_enrichment,
)
from automation_pipeline.enrichment.sources import source_statuses

PATH = "/v1/requests"
ONE = f"{PATH}/{{request_id}}"
SIREN = r"^[0-9]{9}$"
DANONE: Mapping[str, object] = {"siren": "552 032 534"}
HEAD_OFFICE: Mapping[str, object] = {"siret": "73282932000074", "strict": True}


class RequestAnswered(RequestShown):
    """`outcome`: CACHE_HIT, the known data is fresh; ATTACHED, a job was already open; ENQUEUED,
    the request created a job."""

    model_config = ConfigDict(extra="ignore")

    outcome: RequestOutcome


class RequestsShown(BaseModel):
    requests: list[CompanyRequestShown]
    count: int
    limit: int
    offset: int


class EnrichmentJobsShown(BaseModel):
    jobs: list[EnrichmentJobShown]
    count: int


class SourceShown(ContractModel):
    """`is_configured`: the system calls this source. `calls_a_day`: the daily limit of calls; null:
    no limit."""

    source_api: SourceApi
    resting_until: Instant | None
    reason: str | None
    failures: int
    calls_today: int
    is_configured: bool
    calls_a_day: int | None


class SourcesShown(BaseModel):
    sources: list[SourceShown]


class ContractFault(BaseModel):
    field: str = Field(examples=["siren"])
    reason: str = Field(examples=["must be nine digits, not all of them zero"])


class ContractError(BaseModel):
    """`error` is the name of the status, `message` explains the error."""

    error: str = Field(examples=["Bad Request"])
    code: str = Field(examples=["INVALID_SIREN_FORMAT"])
    message: str
    details: list[ContractFault]
    correlation_id: str
    request_id: str = Field(
        description="The id of the HTTP request, as in the header X-Request-Id."
    )
    timestamp: str = Field(examples=["2026-05-04T10:00:03.120Z"])


Responses = dict[int | str, dict[str, object]]


def _with_contract_error(documented: Responses) -> Responses:
    return {status: {**one, "model": ContractError} for status, one in documented.items()}


REFUSALS = _with_contract_error(COMMON)
NOT_FOUND = _with_contract_error(refusals(404))
RUNNING: Responses = {
    202: {
        "model": RequestAnswered,
        "description": "The enrichment is still running: read the request again",
    }
}
CORRELATION_HEADER: Mapping[str, object] = {
    "name": CORRELATION_ID,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 128},
    "description": "Recorded in the events, the log and the Dagster run of this request. Generated if omitted.",
}
WITH_CORRELATION: dict[str, object] = {"parameters": [CORRELATION_HEADER]}

requests = APIRouter(route_class=GuardedRoute, tags=["company requests"], responses=REFUSALS)
companies = APIRouter(route_class=GuardedRoute, tags=["companies"], responses=REFUSALS)

OfSiren = Annotated[
    str | None,
    Query(pattern=SIREN, examples=["552032534"], description="Only requests for this SIREN."),
]
SirenInPath = Annotated[str, Path(pattern=SIREN, examples=["552032534"])]


def requester_of(caller: Caller) -> Requester:
    """The tenant is the caller's organisation, if any."""
    return Requester(
        tenant_id=caller.org_id or DEFAULT_TENANT,
        correlation_id=correlation_id() or uuid4().hex,
        actor=caller.id,
    )


@requests.post(
    PATH,
    status_code=201,
    response_model=RequestAnswered,
    responses={**RUNNING, **_with_contract_error(refusals(409, 422))},
    openapi_extra=WITH_CORRELATION,
)
async def create(
    request: Request,
    body: Annotated[JsonObject, json_body(RequestInput, danone=DANONE, head_office=HEAD_OFFICE)],
    caller: CallerDep,
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Request a company by its SIREN or SIRET. Data younger than 30 days is returned at once.
    Otherwise the request starts an enrichment and waits one second for it: the status is 201 if it
    ends in that time, else 202."""
    registries, requester = (services.registries, requester_of(caller))
    check_configured(registries.sources)

    def file_request() -> Response:
        answer = request_enrichment(
            body,
            requester,
            options=registries.options,
            database=services.database,
            clock=services.clock,
        )
        services.meter.count(REQUESTS, outcome=answer.outcome)
        return JSONResponse(
            {"request_id": answer.request_id, "job_id": answer.job_id, "outcome": answer.outcome}
        )

    filed = await run_in_threadpool(once, file_request)
    answer = json.loads(bytes(filed.body))
    if answer["job_id"] is not None:
        attempt = work_enrichment(
            int(answer["job_id"]),
            registries=registries,
            database=services.database,
            clock=services.clock,
            owner=f"api:{socket.gethostname()}:{os.getpid()}",
        )
        started = cast("BackgroundWork", request.app.state.enrichments)
        await started.wait_for(attempt, registries.options.sync_seconds)
    shown = await run_in_threadpool(
        _answered, int(answer["request_id"]), RequestOutcome(answer["outcome"]), requester, services
    )
    return JSONResponse(
        shown.model_dump(mode="json"),
        202 if shown.enrichment_running else 201,
        headers={
            name: filed.headers[name] for name in ("Idempotent-Replay",) if name in filed.headers
        },
    )


@requests.get(PATH)
def list_(
    caller: CallerDep,
    database: DatabaseDep,
    siren: OfSiren = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> RequestsShown:
    """List the requests of the caller's tenant, newest first."""
    tenant_id = requester_of(caller).tenant_id
    found = database.read(list_requests, tenant_id, siren=siren, limit=limit, offset=offset)
    return RequestsShown(requests=[*found], count=len(found), limit=limit, offset=offset)


@requests.get(ONE, responses=NOT_FOUND, openapi_extra=WITH_CORRELATION)
def show(request_id: IdInPath, caller: CallerDep, services: ServicesDep) -> RequestShown:
    """Show one request with the current data of its company. Stale or missing data starts a
    refresh: `enrichment_running` is then true, and a later call returns the result."""
    return open_request(
        request_id,
        requester_of(caller),
        options=services.registries.options,
        database=services.database,
        clock=services.clock,
    )


@requests.get(f"{ONE}/jobs", responses=NOT_FOUND)
def jobs(
    request_id: IdInPath, caller: CallerDep, database: DatabaseDep, limit: Limit = 20
) -> EnrichmentJobsShown:
    """List the enrichments of the request's company, newest first, with the result of each source
    and the changes."""
    found = database.read(jobs_of_request, request_id, requester_of(caller).tenant_id, limit)
    return EnrichmentJobsShown(jobs=[*found], count=len(found))


@requests.post(
    f"{ONE}:refresh-company",
    status_code=202,
    response_model=RequestAnswered,
    responses=_with_contract_error(refusals(404, 409)),
    openapi_extra=WITH_CORRELATION,
)
def refresh(
    request_id: IdInPath, caller: CallerDep, services: ServicesDep, once: OncePerKey
) -> Response:
    """Refresh the company even if its data is fresh. Allowed once per 15 minutes and company; a
    failed company can be refreshed at any time."""
    requester = requester_of(caller)
    check_configured(services.registries.sources)

    def refresh_once() -> Response:
        answer: EnrichmentAnswer = refresh_company(
            request_id,
            requester,
            options=services.registries.options,
            database=services.database,
            clock=services.clock,
        )
        services.meter.count(REQUESTS, outcome=answer.outcome)
        return JSONResponse(
            _answered(request_id, answer.outcome, requester, services).model_dump(mode="json"), 202
        )

    return once(refresh_once)


def _answered(
    request_id: int, outcome: RequestOutcome, requester: Requester, services: Services
) -> RequestAnswered:
    return RequestAnswered(
        outcome=outcome,
        **dict(services.database.read(get_request, request_id, requester.tenant_id)),
    )


@companies.get("/v1/companies/{siren}", name="show", responses=NOT_FOUND)
def show_company(siren: SirenInPath, database: DatabaseDep) -> CompanyShown:
    """Show the last snapshot of a company with the source of each field. This endpoint calls no register."""
    company = database.read(find_companies, [siren]).get(siren)
    if company is None:
        raise NotFoundError(f"Company {siren} is unknown here: request it with POST /v1/requests.")
    return company


@companies.get("/v1/sources")
def sources(services: ServicesDep) -> SourcesShown:
    """Show the status of the sources: which are configured, which are paused and until when, and
    their calls of today (UTC)."""
    configured, now = (services.registries.sources, services.clock.now())
    statuses = services.database.read(source_statuses)
    shown: list[SourceShown] = []
    for api, status in statuses.items():
        is_resting, source = (status.is_resting(now), configured.get(api))
        shown.append(
            SourceShown(
                source_api=api,
                resting_until=status.open_until if is_resting else None,
                reason=status.open_reason if is_resting else None,
                failures=status.failures,
                calls_today=status.used_on(now.date()),
                is_configured=source is not None,
                calls_a_day=None if source is None else source.calls_a_day,
            )
        )
    return SourcesShown(sources=shown)
