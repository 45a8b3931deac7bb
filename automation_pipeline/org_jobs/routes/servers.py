"""Routes of servers."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import DoneOnce
from automation_pipeline.api.openapi import takes
from automation_pipeline.api.parameters import (
    IdInPath,
    Limit,
    Offset,
    OneHost,
    OneOrg,
    PartOfName,
    TheCaller,
    TheServices,
)
from automation_pipeline.api.responses import Answer, Listing, answer, listed, refusals
from automation_pipeline.api.scopes import AnOrg, TheWithin
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.models.organisations import Server, ServerInput
from automation_pipeline.org_jobs.organisations import create_server, delete_server, update_server
from automation_pipeline.org_jobs.queries.organisations import get_server, list_servers
from automation_pipeline.org_jobs.routes.organisations import SERVER, SERVER_CHANGE

router = APIRouter(route_class=GuardedRoute, tags=["organisations' servers"])
PATH = "/api/org-servers"
ONE = f"{PATH}/{{server_id}}"


@dataclass(frozen=True)
class ServerChoice:
    """Which servers are wanted."""

    org: OneOrg = None
    host: OneHost = None
    q: PartOfName = None


@router.get(PATH, response_model=Listing[Server])
def list_(
    within: TheWithin,
    services: TheServices,
    chosen: Annotated[ServerChoice, Depends()],
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List the servers by organisation and name."""
    with services.database.reading() as session:
        found = list_servers(
            session,
            within,
            org_id=chosen.org,
            host_id=chosen.host,
            q=chosen.q,
            limit=limit,
            offset=offset,
        )
    return listed(found, limit, offset)


@router.post(
    PATH,
    status_code=201,
    response_model=Answer[Server],
    responses=refusals(404, 409),
    openapi_extra=takes(ServerInput, server=SERVER),
)
def create(
    body: TheBody,
    org_id: AnOrg,
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
    once: DoneOnce,
) -> Response:
    """Take in a server, on a host of its organisation or on none yet."""

    def work() -> Response:
        made = create_server(
            body,
            org_id=org_id,
            within=within,
            database=services.database,
            clock=services.clock,
            actor=caller.id,
        )
        return answer(as_document(made), status=201)

    return once(work)


@router.get(ONE, response_model=Answer[Server], responses=refusals(404))
def show(server_id: IdInPath, within: TheWithin, services: TheServices) -> Response:
    """Show one server."""
    with services.database.reading() as session:
        return answer(as_document(get_server(session, server_id, within)))


@router.patch(
    ONE,
    response_model=Answer[Server],
    responses=refusals(404, 409),
    openapi_extra=takes(ServerInput, partial={}, out_of_use=SERVER_CHANGE),
)
def update(
    server_id: IdInPath, body: TheBody, within: TheWithin, caller: TheCaller, services: TheServices
) -> Response:
    """Change the fields that are named. Jobs that nobody has begun move with it to another host."""
    changed = update_server(
        server_id,
        body,
        within=within,
        database=services.database,
        clock=services.clock,
        actor=caller.id,
    )
    return answer(as_document(changed))


@router.delete(ONE, status_code=204, responses=refusals(404, 409))
def delete(
    server_id: IdInPath, within: TheWithin, caller: TheCaller, services: TheServices
) -> Response:
    """Take a server away that has no schedules, and no jobs that are kept."""
    delete_server(
        server_id, within=within, database=services.database, clock=services.clock, actor=caller.id
    )
    return Response(status_code=204)
