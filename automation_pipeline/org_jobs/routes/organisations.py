"""HTTP endpoints of organisations, their hosts and servers, and their history."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from automation_pipeline.api.bodies import JsonObject, json_body
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import OncePerKey
from automation_pipeline.api.parameters import (
    AfterId,
    DatabaseDep,
    HostFilter,
    IdInPath,
    Limit,
    NameFilter,
    NewestFirst,
    Offset,
    OrgFilter,
    OrgInPath,
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
from automation_pipeline.api.scopes import OrgContextDep, OrgScopeDep, RequiredOrg, narrowed
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.org_jobs.models.organisations import (
    AuditEntry,
    Host,
    HostInput,
    Organisation,
    OrganisationFields,
    OrganisationInput,
    Server,
    ServerInput,
)
from automation_pipeline.org_jobs.organisations import (
    create_host,
    create_organisation,
    create_server,
    delete_host,
    delete_server,
    resume_organisation,
    suspend_organisation,
    update_host,
    update_organisation,
    update_server,
)
from automation_pipeline.org_jobs.queries.health import list_alerts
from automation_pipeline.org_jobs.queries.organisations import (
    audit_log,
    get_host,
    get_organisation,
    get_server,
    list_hosts,
    list_organisations,
    list_servers,
)
from automation_pipeline.org_jobs.rules.health import OrgAlert

Example = Mapping[str, object]
ACME: Example = {"id": "acme", "name": "Acme Hosting", "maxRunning": 20}
FEWER: Example = {"maxRunning": 5, "maintenanceUntil": "2027-01-10T04:00:00Z"}
HOST: Example = {"name": "rack-1"}
HOST_CHANGE: Example = {"maintenanceUntil": "2027-01-10T04:00:00Z"}
SERVER: Example = {"name": "valheim-1", "hostId": "12"}
SERVER_CHANGE: Example = {"isEnabled": False}
UNPAID: Example = {"reason": "The invoice of March is open"}
MISTAKEN: Example = {"reason": "The wrong month"}


class ReasonInput(JsonModel):
    reason: str | None = Field(default=None, max_length=1000)


router = APIRouter(route_class=GuardedRoute, tags=["organisations"])
PATH = "/api/organisations"
ONE = f"{PATH}/{{org_id}}"


@router.get(PATH, response_model=Listing[Organisation])
def list_(
    within: OrgScopeDep,
    database: DatabaseDep,
    *,
    q: Annotated[
        str | None, Query(max_length=200, description="A part of the id or the name.")
    ] = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List the organisations by id; a token of an organisation sees only that one."""
    return listed(
        database.read(list_organisations, within, q=q, limit=limit, offset=offset),
        limit,
        offset,
    )


@router.post(PATH, status_code=201, response_model=Answer[Organisation], responses=refusals(409))
def create(
    body: Annotated[JsonObject, json_body(OrganisationInput, acme=ACME)],
    context: OrgContextDep,
    once: OncePerKey,
) -> Response:
    """Create an organisation. Its id cannot be changed."""
    return once(lambda: answer(create_organisation(body, **context), status=201))


@router.get(ONE, response_model=Answer[Organisation], responses=refusals(404))
def show(org_id: OrgInPath, within: OrgScopeDep, database: DatabaseDep) -> Response:
    """Show one organisation: whether it is suspended, and the maximum number of its concurrent jobs."""
    return answer(database.read(get_organisation, org_id, within))


@router.patch(ONE, response_model=Answer[Organisation], responses=refusals(404))
def update(
    org_id: OrgInPath,
    body: Annotated[JsonObject, json_body(OrganisationFields, partial=True, fewer=FEWER)],
    context: OrgContextDep,
) -> Response:
    """Change the given fields. Jobs that are due before `maintenanceUntil` are skipped."""
    return answer(update_organisation(org_id, body, **context))


@router.post(f"{ONE}/suspend", response_model=Answer[Organisation], responses=refusals(404, 409))
def suspend(
    org_id: OrgInPath,
    given: Annotated[
        ReasonInput, json_body(ReasonInput, "Invalid suspend data", required=False, unpaid=UNPAID)
    ],
    context: OrgContextDep,
) -> Response:
    """Pause all its schedules and start none of its jobs until it is resumed. Running jobs continue."""
    return answer(suspend_organisation(org_id, reason=given.reason, **context))


@router.post(f"{ONE}/resume", response_model=Answer[Organisation], responses=refusals(404, 409))
def resume(org_id: OrgInPath, context: OrgContextDep) -> Response:
    """Resume a suspended organisation: the schedules that were paused with it continue from now."""
    return answer(resume_organisation(org_id, **context))


hosts = APIRouter(route_class=GuardedRoute, tags=["organisations' hosts"])
HOSTS = "/api/org-hosts"
ONE_HOST = f"{HOSTS}/{{host_id}}"


@hosts.get(HOSTS, response_model=Listing[Host], name="list_")
def show_hosts(
    within: OrgScopeDep,
    database: DatabaseDep,
    *,
    org: OrgFilter = None,
    q: NameFilter = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List the hosts by organisation and name, each with the last call of its agent."""
    return listed(
        database.read(list_hosts, within, org_id=org, q=q, limit=limit, offset=offset),
        limit,
        offset,
    )


@hosts.post(
    HOSTS, status_code=201, response_model=Answer[Host], responses=refusals(404, 409), name="create"
)
def add_host(
    body: Annotated[JsonObject, json_body(HostInput, host=HOST)],
    org_id: RequiredOrg,
    context: OrgContextDep,
    once: OncePerKey,
) -> Response:
    """Create a host for an agent."""
    return once(lambda: answer(create_host(body, org_id=org_id, **context), status=201))


@hosts.get(ONE_HOST, response_model=Answer[Host], responses=refusals(404), name="show")
def show_host(host_id: IdInPath, within: OrgScopeDep, database: DatabaseDep) -> Response:
    """Show one host."""
    return answer(database.read(get_host, host_id, within))


@hosts.patch(ONE_HOST, response_model=Answer[Host], responses=refusals(404, 409), name="update")
def change_host(
    host_id: IdInPath,
    body: Annotated[JsonObject, json_body(HostInput, partial=True, maintenance=HOST_CHANGE)],
    context: OrgContextDep,
) -> Response:
    """Change the given fields. Jobs on its servers that are due before `maintenanceUntil` are skipped."""
    return answer(update_host(host_id, body, **context))


@hosts.delete(ONE_HOST, status_code=204, responses=refusals(404, 409), name="delete")
def remove_host(host_id: IdInPath, context: OrgContextDep) -> Response:
    """Delete a host that has no servers and whose agent has no jobs."""
    delete_host(host_id, **context)
    return Response(status_code=204)


servers = APIRouter(route_class=GuardedRoute, tags=["organisations' servers"])
SERVERS = "/api/org-servers"
ONE_SERVER = f"{SERVERS}/{{server_id}}"


@servers.get(SERVERS, response_model=Listing[Server], name="list_")
def show_servers(  # noqa: PLR0913  the filters of the list, by name
    within: OrgScopeDep,
    database: DatabaseDep,
    *,
    limit: Limit = 50,
    offset: Offset = 0,
    org: OrgFilter = None,
    host: HostFilter = None,
    q: NameFilter = None,
) -> Response:
    """List the servers by organisation and name."""
    return listed(
        database.read(
            list_servers, within, org_id=org, host_id=host, q=q, limit=limit, offset=offset
        ),
        limit,
        offset,
    )


@servers.post(
    SERVERS,
    status_code=201,
    response_model=Answer[Server],
    responses=refusals(404, 409),
    name="create",
)
def add_server(
    body: Annotated[JsonObject, json_body(ServerInput, server=SERVER)],
    org_id: RequiredOrg,
    context: OrgContextDep,
    once: OncePerKey,
) -> Response:
    """Create a server, on a host of its organisation or without a host."""
    return once(lambda: answer(create_server(body, org_id=org_id, **context), status=201))


@servers.get(ONE_SERVER, response_model=Answer[Server], responses=refusals(404), name="show")
def show_server(server_id: IdInPath, within: OrgScopeDep, database: DatabaseDep) -> Response:
    """Show one server."""
    return answer(database.read(get_server, server_id, within))


@servers.patch(
    ONE_SERVER, response_model=Answer[Server], responses=refusals(404, 409), name="update"
)
def change_server(
    server_id: IdInPath,
    body: Annotated[JsonObject, json_body(ServerInput, partial=True, out_of_use=SERVER_CHANGE)],
    context: OrgContextDep,
) -> Response:
    """Change the given fields. Its jobs that have not started move with it to another host."""
    return answer(update_server(server_id, body, **context))


@servers.delete(ONE_SERVER, status_code=204, responses=refusals(404, 409), name="delete")
def remove_server(server_id: IdInPath, context: OrgContextDep) -> Response:
    """Delete a server that has no schedules and no stored jobs."""
    delete_server(server_id, **context)
    return Response(status_code=204)


history = APIRouter(route_class=GuardedRoute, tags=["organisations' history"])


@history.get("/api/org-alerts", response_model=Listing[OrgAlert])
def alerts(
    within: OrgScopeDep,
    database: DatabaseDep,
    *,
    org: OrgFilter = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List the alerts, newest first: with the reason and the delivery of each. Alerts about the
    scheduler itself are visible only to callers of no organisation."""
    return listed(
        database.read(list_alerts, within, org_id=org, limit=limit, offset=offset),
        limit,
        offset,
    )


@history.get("/api/org-audit-log", response_model=Following[AuditEntry])
def log(  # noqa: PLR0913  the filters of the list, by name
    within: OrgScopeDep,
    database: DatabaseDep,
    *,
    after: AfterId = 0,
    limit: Limit = 100,
    newest: NewestFirst = False,
    org: OrgFilter = None,
    entity: Annotated[
        str | None,
        Query(
            max_length=50, description="Only changes of this kind of entity, such as `schedule`."
        ),
    ] = None,
    entity_id: Annotated[
        str | None, Query(max_length=100, description="Only changes of the entity with this id.")
    ] = None,
) -> Response:
    """List all changes of schedules, jobs, hosts and servers with actor, time and reason, oldest first."""
    scope = narrowed(within, org)
    if scope is None:
        return following([], limit)
    return following(
        database.read(
            audit_log,
            scope,
            entity=entity,
            entity_id=entity_id,
            limit=limit,
            after_id=after,
            newest_first=newest,
        ),
        limit,
    )
