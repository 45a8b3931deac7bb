"""When an organisation's schedule is due next, when it was, and who changed it."""

from fastapi import APIRouter
from starlette.responses import Response

from automation_pipeline.api.context import Limit, TheServices
from automation_pipeline.api.envelope import Answer, Following, answer, following, refusals
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.org_queries import After, AfterId, Coming, Newest, ScheduleInPath
from automation_pipeline.api.org_scopes import TheWithin
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.domain.audit_entry import AuditEntry
from automation_pipeline.org_jobs.domain.org_schedule import ScheduleFire
from automation_pipeline.org_jobs.domain.preview import SchedulePreview
from automation_pipeline.org_jobs.stages.coming_runs import coming_runs
from automation_pipeline.org_jobs.store.audit_log import audit_log
from automation_pipeline.org_jobs.store.schedules import fires_of, get_schedule

router = APIRouter(route_class=GuardedRoute, tags=["organisations' schedules"])
ONE = "/api/org-schedules/{org_schedule_id}"


@router.get(f"{ONE}/next", response_model=Answer[SchedulePreview], responses=refusals(404))
def coming(
    org_schedule_id: ScheduleInPath,
    within: TheWithin,
    services: TheServices,
    after: After = None,
    count: Coming = 10,
) -> Response:
    """List the coming due times, with what summer time does to them."""
    preview = coming_runs(
        org_schedule_id, within=within, database=services.database, clock=services.clock, count=count, after=after
    )
    return answer(as_document(preview))


@router.get(f"{ONE}/fires", response_model=Following[ScheduleFire], responses=refusals(404))
def fires(
    org_schedule_id: ScheduleInPath,
    within: TheWithin,
    services: TheServices,
    after: AfterId = 0,
    limit: Limit = 50,
    newest: Newest = False,
) -> Response:
    """List the times that it was due, oldest first, and what became of each: a job, or why there was none."""
    with services.database.reading() as session:
        found = fires_of(session, org_schedule_id, within, limit, after, newest_first=newest)
    return following(found, limit)


@router.get(f"{ONE}/log", response_model=Following[AuditEntry], responses=refusals(404))
def log(
    org_schedule_id: ScheduleInPath,
    within: TheWithin,
    services: TheServices,
    after: AfterId = 0,
    limit: Limit = 100,
    newest: Newest = False,
) -> Response:
    """Who changed what of it, when and why. Oldest first."""
    with services.database.reading() as session:
        get_schedule(session, org_schedule_id, within)
        found = audit_log(
            session,
            within,
            entity="schedule",
            entity_id=org_schedule_id,
            limit=limit,
            after_id=after,
            newest_first=newest,
        )
    return following(found, limit)
