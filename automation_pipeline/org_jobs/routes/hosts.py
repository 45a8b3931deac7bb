"""Routes of hosts."""

from fastapi import APIRouter
from starlette.responses import Response

from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import DoneOnce
from automation_pipeline.api.openapi import takes
from automation_pipeline.api.parameters import (
    IdInPath,
    Limit,
    Offset,
    OneOrg,
    PartOfName,
    TheCaller,
    TheServices,
)
from automation_pipeline.api.responses import Answer, Listing, answer, listed, refusals
from automation_pipeline.api.scopes import AnOrg, TheWithin
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.models.organisations import Host, HostInput
from automation_pipeline.org_jobs.organisations import create_host, delete_host, update_host
from automation_pipeline.org_jobs.queries.organisations import get_host, list_hosts
from automation_pipeline.org_jobs.routes.organisations import HOST, HOST_CHANGE

router = APIRouter(route_class=GuardedRoute, tags=["organisations' hosts"])
PATH = "/api/org-hosts"
ONE = f"{PATH}/{{host_id}}"


@router.get(PATH, response_model=Listing[Host])
def list_(
    within: TheWithin,
    services: TheServices,
    *,
    org: OneOrg = None,
    q: PartOfName = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List the hosts by organisation and name, each with when its agent was last heard of."""
    with services.database.reading() as session:
        found = list_hosts(session, within, org_id=org, q=q, limit=limit, offset=offset)
    return listed(found, limit, offset)


@router.post(
    PATH,
    status_code=201,
    response_model=Answer[Host],
    responses=refusals(404, 409),
    openapi_extra=takes(HostInput, host=HOST),
)
def create(
    body: TheBody,
    org_id: AnOrg,
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
    once: DoneOnce,
) -> Response:
    """Take in a host, for an agent to work on."""

    def work() -> Response:
        made = create_host(
            body,
            org_id=org_id,
            within=within,
            database=services.database,
            clock=services.clock,
            actor=caller.id,
        )
        return answer(as_document(made), status=201)

    return once(work)


@router.get(ONE, response_model=Answer[Host], responses=refusals(404))
def show(host_id: IdInPath, within: TheWithin, services: TheServices) -> Response:
    """Show one host."""
    with services.database.reading() as session:
        return answer(as_document(get_host(session, host_id, within)))


@router.patch(
    ONE,
    response_model=Answer[Host],
    responses=refusals(404, 409),
    openapi_extra=takes(HostInput, partial={}, maintenance=HOST_CHANGE),
)
def update(
    host_id: IdInPath, body: TheBody, within: TheWithin, caller: TheCaller, services: TheServices
) -> Response:
    """Change the fields that are named. While `maintenanceUntil` lasts, what is due on its servers
    is left out."""
    changed = update_host(
        host_id,
        body,
        within=within,
        database=services.database,
        clock=services.clock,
        actor=caller.id,
    )
    return answer(as_document(changed))


@router.delete(ONE, status_code=204, responses=refusals(404, 409))
def delete(
    host_id: IdInPath, within: TheWithin, caller: TheCaller, services: TheServices
) -> Response:
    """Take a host away that has no servers and whose agent has nothing to do."""
    delete_host(
        host_id, within=within, database=services.database, clock=services.clock, actor=caller.id
    )
    return Response(status_code=204)
