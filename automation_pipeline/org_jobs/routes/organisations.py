"""Routes of organisations."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from automation_pipeline.api.bodies import OptionalBody, TheBody
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import DoneOnce
from automation_pipeline.api.openapi import takes
from automation_pipeline.api.parameters import Limit, Offset, OrgInPath, TheCaller, TheServices
from automation_pipeline.api.responses import Answer, Listing, answer, listed, refusals
from automation_pipeline.api.scopes import TheWithin
from automation_pipeline.core.json_model import JsonModel, as_document, parse
from automation_pipeline.org_jobs.models.organisations import (
    Organisation,
    OrganisationFields,
    OrganisationInput,
)
from automation_pipeline.org_jobs.organisations import (
    create_organisation,
    resume_organisation,
    suspend_organisation,
    update_organisation,
)
from automation_pipeline.org_jobs.queries.organisations import get_organisation, list_organisations

ACME: Mapping[str, object] = {"id": "acme", "name": "Acme Hosting", "maxRunning": 20}
FEWER: Mapping[str, object] = {"maxRunning": 5, "maintenanceUntil": "2027-01-10T04:00:00Z"}
HOST: Mapping[str, object] = {"name": "rack-1"}
HOST_CHANGE: Mapping[str, object] = {"maintenanceUntil": "2027-01-10T04:00:00Z"}
SERVER: Mapping[str, object] = {"name": "valheim-1", "hostId": "12"}
SERVER_CHANGE: Mapping[str, object] = {"isEnabled": False}
UNPAID: Mapping[str, object] = {"reason": "The invoice of March is open"}
MISTAKEN: Mapping[str, object] = {"reason": "The wrong month"}


class ReasonInput(JsonModel):
    reason: str | None = Field(default=None, max_length=1000)


router = APIRouter(route_class=GuardedRoute, tags=["organisations"])
PATH = "/api/organisations"
ONE = f"{PATH}/{{org_id}}"


@router.get(PATH, response_model=Listing[Organisation])
def list_(
    within: TheWithin,
    services: TheServices,
    *,
    q: Annotated[
        str | None, Query(max_length=200, description="Part of the id or the name.")
    ] = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List the organisations by their ids; a token of an organisation sees that one."""
    with services.database.reading() as session:
        found = list_organisations(session, within, q=q, limit=limit, offset=offset)
    return listed(found, limit, offset)


@router.post(
    PATH,
    status_code=201,
    response_model=Answer[Organisation],
    responses=refusals(409),
    openapi_extra=takes(OrganisationInput, acme=ACME),
)
def create(
    body: TheBody, within: TheWithin, caller: TheCaller, services: TheServices, once: DoneOnce
) -> Response:
    """Take in an organisation. Its id is for good."""

    def work() -> Response:
        made = create_organisation(
            body, within=within, database=services.database, clock=services.clock, actor=caller.id
        )
        return answer(as_document(made), status=201)

    return once(work)


@router.get(ONE, response_model=Answer[Organisation], responses=refusals(404))
def show(org_id: OrgInPath, within: TheWithin, services: TheServices) -> Response:
    """Show one organisation: whether it is suspended, and how many of its jobs may be at work at a
    time."""
    with services.database.reading() as session:
        return answer(as_document(get_organisation(session, org_id, within)))


@router.patch(
    ONE,
    response_model=Answer[Organisation],
    responses=refusals(404),
    openapi_extra=takes(OrganisationFields, partial={}, fewer=FEWER),
)
def update(
    org_id: OrgInPath, body: TheBody, within: TheWithin, caller: TheCaller, services: TheServices
) -> Response:
    """Change the fields that are named. While `maintenanceUntil` lasts, what is due is left out."""
    changed = update_organisation(
        org_id,
        body,
        within=within,
        database=services.database,
        clock=services.clock,
        actor=caller.id,
    )
    return answer(as_document(changed))


@router.post(
    f"{ONE}/suspend",
    response_model=Answer[Organisation],
    responses=refusals(404, 409),
    openapi_extra=takes(ReasonInput, required=False, unpaid=UNPAID),
)
def suspend(
    org_id: OrgInPath,
    body: OptionalBody,
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
) -> Response:
    """Pause all its schedules and begin none of its jobs until it is resumed. What is at work goes
    on."""
    reason = parse(ReasonInput, body, "Invalid suspend data").reason
    suspended = suspend_organisation(
        org_id,
        within=within,
        database=services.database,
        clock=services.clock,
        actor=caller.id,
        reason=reason,
    )
    return answer(as_document(suspended))


@router.post(f"{ONE}/resume", response_model=Answer[Organisation], responses=refusals(404, 409))
def resume(
    org_id: OrgInPath, within: TheWithin, caller: TheCaller, services: TheServices
) -> Response:
    """Take a suspended organisation back: the schedules that were paused with it go on, from
    now."""
    resumed = resume_organisation(
        org_id, within=within, database=services.database, clock=services.clock, actor=caller.id
    )
    return answer(as_document(resumed))
