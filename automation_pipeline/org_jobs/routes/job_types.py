"""Routes of job types: list all, and define those of an organisation's agents."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import DoneOnce
from automation_pipeline.api.openapi import takes
from automation_pipeline.api.parameters import TheCaller, TheServices
from automation_pipeline.api.responses import Answer, answer, refusals
from automation_pipeline.api.scopes import AnOrg, PerhapsAnOrg, TheWithin
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.models.job_types import JobTypeCard, OwnTypeFields, OwnTypeInput
from automation_pipeline.org_jobs.organisations import (
    create_job_type,
    delete_job_type,
    update_job_type,
)
from automation_pipeline.org_jobs.queries.organisations import list_job_types

SCHEMA: Mapping[str, object] = {
    "type": "object",
    "required": ["format"],
    "properties": {"format": {"enum": ["csv", "pdf"]}},
}
FIELDS: Mapping[str, object] = {
    "summary": "Export the report of the day.",
    "isMutation": False,
    "limitSeconds": 600,
    "payloadSchema": SCHEMA,
}
EXPORT: Mapping[str, object] = {"name": "REPORT_EXPORT", **FIELDS}

router = APIRouter(route_class=GuardedRoute, tags=["organisations' jobs"])
PATH = "/api/org-jobs/types"
ONE = f"{PATH}/{{type_name}}"
TypeName = Annotated[
    str, Path(max_length=100, description="A type of the organisation.", examples=["REPORT_EXPORT"])
]


@router.get(PATH, response_model=Answer[list[JobTypeCard]], responses=refusals(404))
def types(org_id: PerhapsAnOrg, services: TheServices) -> Response:
    """List the types of jobs: who does them, for how long at most, what their payload holds, and
    who may ask. With an organisation, also those that it defines."""
    with services.database.reading() as session:
        return answer([as_document(one) for one in list_job_types(session, org_id)])


@router.post(
    PATH,
    status_code=201,
    response_model=Answer[JobTypeCard],
    responses=refusals(404, 409),
    openapi_extra=takes(OwnTypeInput, export=EXPORT),
)
def create_type(
    body: TheBody,
    org_id: AnOrg,
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
    once: DoneOnce,
) -> Response:
    """Define a type of job that the organisation's agents do, or replace a built-in one."""

    def work() -> Response:
        made = create_job_type(
            body,
            org_id=org_id,
            within=within,
            database=services.database,
            clock=services.clock,
            actor=caller.id,
        )
        return answer(as_document(made), status=201)

    return once(work)


@router.put(
    ONE,
    response_model=Answer[JobTypeCard],
    responses=refusals(404),
    openapi_extra=takes(OwnTypeFields, partial={}, export=FIELDS),
)
def update_type(
    type_name: TypeName,
    body: TheBody,
    org_id: AnOrg,
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
) -> Response:
    """Change a type that the organisation defines. A field that is left out stays."""
    changed = update_job_type(
        type_name,
        body,
        org_id=org_id,
        within=within,
        database=services.database,
        clock=services.clock,
        actor=caller.id,
    )
    return answer(as_document(changed))


@router.delete(ONE, status_code=204, responses=refusals(404, 409))
def delete_type(
    type_name: TypeName,
    org_id: AnOrg,
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
) -> Response:
    """Delete a type that the organisation defines, unless schedules or open jobs have it."""
    delete_job_type(
        type_name,
        org_id=org_id,
        within=within,
        database=services.database,
        clock=services.clock,
        actor=caller.id,
    )
    return Response(status_code=204)
