"""Schedules of organisations: what is done for them, and when."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from starlette.responses import Response

from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.context import Limit, Offset, TheCaller, TheServices
from automation_pipeline.api.documented import takes
from automation_pipeline.api.envelope import Answer, Listing, answer, listed, refusals
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.once import DoneOnce
from automation_pipeline.api.org_answers import shown_schedule
from automation_pipeline.api.org_queries import (
    After,
    Coming,
    OneOrg,
    OneServer,
    PartOfName,
    ScheduleInPath,
)
from automation_pipeline.api.org_scopes import AnOrg, TheWithin, check_may_have_done
from automation_pipeline.api.schemas.org_schedules import CALL, CHANGE, RESTART, OrgScheduleInput
from automation_pipeline.api.versions import expected_number
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule
from automation_pipeline.org_jobs.domain.preview import SchedulePreview
from automation_pipeline.org_jobs.domain.states import ScheduleState
from automation_pipeline.org_jobs.stages.create_schedule import create_schedule
from automation_pipeline.org_jobs.stages.delete_schedule import delete_schedule
from automation_pipeline.org_jobs.stages.preview_schedule import preview_schedule
from automation_pipeline.org_jobs.stages.update_schedule import update_schedule
from automation_pipeline.org_jobs.store.schedules import ScheduleFilter, get_schedule, list_schedules

router = APIRouter(route_class=GuardedRoute, tags=["organisations' schedules"])
PATH = "/api/org-schedules"
ONE = f"{PATH}/{{org_schedule_id}}"


@dataclass(frozen=True)
class ScheduleChoice:
    """Which schedules are wanted."""

    org: OneOrg = None
    state: Annotated[ScheduleState | None, Query(description="Only those that stand so.")] = None
    job_type: Annotated[str | None, Query(max_length=100, description="Only of this type.")] = None
    server: OneServer = None
    q: PartOfName = None


@router.get(PATH, response_model=Listing[OrgSchedule])
def list_(
    within: TheWithin,
    services: TheServices,
    chosen: Annotated[ScheduleChoice, Depends()],
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List the schedules, newest first."""
    wanted = ScheduleFilter(
        org_id=chosen.org,
        state=chosen.state,
        job_type=chosen.job_type,
        server_instance_id=chosen.server,
        q=chosen.q,
    )
    with services.database.reading() as session:
        found = list_schedules(session, within, chosen=wanted, limit=limit, offset=offset)
    return listed(found, limit, offset)


@router.post(
    PATH,
    status_code=201,
    response_model=Answer[OrgSchedule],
    responses=refusals(404, 409),
    openapi_extra=takes(OrgScheduleInput, restart=RESTART, call=CALL),
)
def create(
    body: TheBody, org_id: AnOrg, within: TheWithin, caller: TheCaller, services: TheServices, once: DoneOnce
) -> Response:
    """Store a new schedule. Some types of jobs ask for a permission of their own: `/api/org-jobs/types`."""
    check_may_have_done(caller, body.get("jobType"))

    def work() -> Response:
        made = create_schedule(
            body,
            org_id=org_id,
            within=within,
            database=services.database,
            clock=services.clock,
            actor=caller.id,
            call_origins=services.settings.org_jobs_https_allowed_origins,
        )
        return shown_schedule(made, status=201)

    return once(work)


@router.post(
    f"{PATH}/preview",
    response_model=Answer[SchedulePreview],
    openapi_extra=takes(OrgScheduleInput, restart=RESTART, call=CALL),
)
def preview(body: TheBody, services: TheServices, after: After = None, count: Coming = 10) -> Response:
    """Say what is wrong with a schedule, or when it would be due. Nothing is stored."""
    origins = services.settings.org_jobs_https_allowed_origins
    shown = preview_schedule(body, count=count, after=after or services.clock.now(), call_origins=origins)
    return answer(as_document(shown))


@router.get(ONE, response_model=Answer[OrgSchedule], responses=refusals(404))
def show(org_schedule_id: ScheduleInPath, within: TheWithin, services: TheServices) -> Response:
    """Show one schedule. The ETag is for changing it safely."""
    with services.database.reading() as session:
        return shown_schedule(get_schedule(session, org_schedule_id, within))


@router.patch(
    ONE,
    response_model=Answer[OrgSchedule],
    responses=refusals(404, 409, 412),
    openapi_extra=takes(
        OrgScheduleInput, partial={"updatedAt": {"type": "string", "format": "date-time"}}, later=CHANGE
    ),
)
def update(
    org_schedule_id: ScheduleInPath,
    body: TheBody,
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
    if_match: Annotated[
        str | None, Header(alias="If-Match", description="Change it only while its ETag is this one.")
    ] = None,
) -> Response:
    """Change the fields that are named. Null clears a field; payload and retry policy are replaced whole.

    A change of when it is due plans it anew from now. With `If-Match`, or `updatedAt` in the body, nothing is changed
    that was changed by somebody else meanwhile.
    """
    expected, patch = expected_number(if_match, body)
    with services.database.reading() as session:
        stored = get_schedule(session, org_schedule_id, within)
    for type_ in (stored.job_type, patch.get("jobType")):
        check_may_have_done(caller, type_)
    changed = update_schedule(
        org_schedule_id,
        patch,
        within=within,
        database=services.database,
        clock=services.clock,
        actor=caller.id,
        expected=expected,
        call_origins=services.settings.org_jobs_https_allowed_origins,
    )
    return shown_schedule(changed)


@router.delete(ONE, status_code=204, responses=refusals(404))
def delete(org_schedule_id: ScheduleInPath, within: TheWithin, caller: TheCaller, services: TheServices) -> Response:
    """Delete a schedule. Jobs that nobody has begun are cancelled, others go on; its history stays for a while."""
    delete_schedule(org_schedule_id, within=within, database=services.database, clock=services.clock, actor=caller.id)
    return Response(status_code=204)
