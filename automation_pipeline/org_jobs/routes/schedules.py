"""HTTP endpoints of organisations' schedules and backfills."""

import hashlib
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from automation_pipeline.api.bodies import JsonObject, json_body
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import Idempotent, OncePerKey
from automation_pipeline.api.parameters import (
    After,
    AfterId,
    CallerDep,
    DatabaseDep,
    IdInPath,
    Limit,
    NameFilter,
    NewestFirst,
    OccurrenceCount,
    Offset,
    OrgFilter,
    OrgScheduleFilter,
    ScheduleInPath,
    ServerFilter,
    ServicesDep,
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
from automation_pipeline.api.scopes import (
    CallOrigins,
    OptionalOrg,
    OrgContextDep,
    OrgScopeDep,
    RequiredOrg,
    StartableSchedule,
    check_job_type_permission,
    get_startable,
)
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.org_jobs.fires import backfill_schedule, cancel_backfill
from automation_pipeline.org_jobs.models.jobs import BatchState, ScheduleState
from automation_pipeline.org_jobs.models.organisations import AuditEntry, Flag, Payload
from automation_pipeline.org_jobs.models.schedules import (
    Dispatched,
    OrgPauseInput,
    OrgSchedule,
    OrgScheduleDefinition,
    ScheduleFire,
    SkipInput,
)
from automation_pipeline.org_jobs.queries.fires import get_backfill, list_backfills
from automation_pipeline.org_jobs.queries.organisations import audit_log
from automation_pipeline.org_jobs.queries.schedules import (
    ScheduleFilter,
    fires_of,
    get_schedule,
    list_schedules,
)
from automation_pipeline.org_jobs.routes.organisations import MISTAKEN, ReasonInput
from automation_pipeline.org_jobs.rules.due import Backfill, BackfillInput
from automation_pipeline.org_jobs.rules.schedules import SchedulePreview
from automation_pipeline.org_jobs.schedules import (
    coming_runs,
    create_schedule,
    delete_schedule,
    keep_next_run,
    pause_schedule,
    preview_schedule,
    resume_schedule,
    run_schedule_now,
    skip_next_run,
    update_schedule,
)

RESTART: Mapping[str, object] = {
    "name": "Nightly restart",
    "serverInstanceId": "12",
    "cronExpression": "30 4 * * *",
    "timezone": "Europe/Paris",
    "jobType": "SERVER_RESTART",
    "executionWindowStart": "02:00",
    "executionWindowEnd": "06:00",
    "retryPolicy": {"maxRetries": 3, "backoffMs": 60000, "backoffType": "exponential"},
}
CALL: Mapping[str, object] = {
    "name": "Warm the cache",
    "cronExpression": "*/15 * * * *",
    "jobType": "HTTPS_CALL",
    "payload": {"url": "https://example.com/warm"},
    "overlapPolicy": "SKIP",
}
CHANGE: Mapping[str, object] = {"cronExpression": "0 5 * * *", "description": None}
HOLIDAYS: Mapping[str, object] = {
    "reason": "Closed for the holidays",
    "until": "2027-01-04T06:00:00Z",
}
EVENT: Mapping[str, object] = {"reason": "The players have a tournament"}
NOW: Mapping[str, object] = {"ignoreWindow": True}
NIGHTS: Mapping[str, object] = {
    "from": "2026-05-01T00:00:00Z",
    "until": "2026-05-03T23:59:59Z",
    "behaviour": "failed",
    "dryRun": True,
}


class OrgScheduleInput(OrgScheduleDefinition):
    """A subclass with a name that differs from that of automation schedules in the OpenAPI document."""


class RunNowInput(JsonModel):
    """`payload` replaces the payload of the schedule for this job. Outside the execution window the
    request is refused, unless it ignores the window."""

    payload: Payload | None = None
    ignore_window: Flag = False


router = APIRouter(route_class=GuardedRoute, tags=["organisations' schedules"])
PATH = "/api/org-schedules"
ONE = f"{PATH}/{{org_schedule_id}}"


def _chosen(
    org: OrgFilter = None,
    state: Annotated[
        ScheduleState | None, Query(description="Only schedules in this state.")
    ] = None,
    job_type: Annotated[
        str | None, Query(max_length=100, description="Only schedules with jobs of this type.")
    ] = None,
    server: ServerFilter = None,
    q: NameFilter = None,
) -> ScheduleFilter:
    return ScheduleFilter(
        org_id=org, state=state, job_type=job_type, server_instance_id=server, q=q
    )


@router.get(PATH, response_model=Listing[OrgSchedule])
def list_(
    within: OrgScopeDep,
    database: DatabaseDep,
    chosen: Annotated[ScheduleFilter, Depends(_chosen)],
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """List the schedules, newest first."""
    return listed(
        database.read(list_schedules, within, chosen=chosen, limit=limit, offset=offset),
        limit,
        offset,
    )


@router.post(
    PATH, status_code=201, response_model=Answer[OrgSchedule], responses=refusals(404, 409)
)
def create(
    body: Annotated[JsonObject, json_body(OrgScheduleInput, restart=RESTART, call=CALL)],
    org_id: RequiredOrg,
    context: OrgContextDep,
    caller: CallerDep,
    origins: CallOrigins,
    once: OncePerKey,
) -> Response:
    """Store a new schedule. Some job types require an additional permission: see `/api/org-jobs/types`."""
    check_job_type_permission(caller, body.get("jobType"))
    return once(
        lambda: answer(
            create_schedule(
                body,
                org_id=org_id,
                call_origins=origins,
                **context,
            ),
            status=201,
        )
    )


@router.post(f"{PATH}/preview", response_model=Answer[SchedulePreview], responses=refusals(404))
def preview(
    body: Annotated[JsonObject, json_body(OrgScheduleInput, restart=RESTART, call=CALL)],
    org_id: OptionalOrg,
    services: ServicesDep,
    after: After = None,
    count: OccurrenceCount = 10,
) -> Response:
    """Check a schedule and return its errors or its due times. Nothing is stored."""
    return answer(
        preview_schedule(
            body,
            org_id=org_id,
            database=services.database,
            count=count,
            after=after or services.clock.now(),
            call_origins=services.settings.org_jobs_https_allowed_origins,
        )
    )


@router.get(ONE, response_model=Answer[OrgSchedule], responses=refusals(404))
def show(org_schedule_id: ScheduleInPath, within: OrgScopeDep, database: DatabaseDep) -> Response:
    """Show one schedule."""
    return answer(database.read(get_schedule, org_schedule_id, within))


@router.patch(ONE, response_model=Answer[OrgSchedule], responses=refusals(404, 409))
def update(
    org_schedule_id: ScheduleInPath,
    body: Annotated[JsonObject, json_body(OrgScheduleInput, partial=True, later=CHANGE)],
    context: OrgContextDep,
    caller: CallerDep,
    origins: CallOrigins,
) -> Response:
    """Change the given fields. Null clears a field; payload and retry policy are replaced as a
    whole. A change of the due times counts from now."""
    stored = context["database"].read(get_schedule, org_schedule_id, context["within"])
    for type_ in (stored.job_type, body.get("jobType")):
        check_job_type_permission(caller, type_)
    return answer(update_schedule(org_schedule_id, body, call_origins=origins, **context))


@router.delete(ONE, status_code=204, responses=refusals(404))
def delete(org_schedule_id: ScheduleInPath, context: OrgContextDep) -> Response:
    """Delete a schedule. Its jobs that have not started are cancelled, running jobs continue, and
    its history stays for a while."""
    delete_schedule(org_schedule_id, **context)
    return Response(status_code=204)


@router.post(f"{ONE}/pause", response_model=Answer[OrgSchedule], responses=refusals(404, 409))
def pause(
    org_schedule_id: ScheduleInPath,
    request: Annotated[
        OrgPauseInput,
        json_body(OrgPauseInput, "Invalid pause data", required=False, holidays=HOLIDAYS),
    ],
    context: OrgContextDep,
    caller: CallerDep,
    services: ServicesDep,
) -> Response:
    """Pause the schedule until it is resumed or until the given instant. Running jobs continue.
    `until` requires the permissions that resuming requires."""
    if request.until is not None:
        get_startable(org_schedule_id, caller, context["within"], services)
    return answer(
        pause_schedule(org_schedule_id, reason=request.reason, until=request.until, **context)
    )


@router.post(f"{ONE}/resume", response_model=Answer[OrgSchedule], responses=refusals(404, 409))
def resume(org_schedule_id: StartableSchedule, context: OrgContextDep) -> Response:
    """Resume a paused schedule from now on. Due times during the pause are not run."""
    return answer(resume_schedule(org_schedule_id, **context))


@router.post(f"{ONE}/skip-next", response_model=Answer[OrgSchedule], responses=refusals(404, 409))
def skip_next(
    org_schedule_id: ScheduleInPath,
    given: Annotated[
        SkipInput, json_body(SkipInput, "Invalid skip data", required=False, tournament=EVENT)
    ],
    context: OrgContextDep,
) -> Response:
    """Skip the next due time. Safe to repeat: the same due time is skipped."""
    return answer(skip_next_run(org_schedule_id, reason=given.reason, **context))


@router.delete(f"{ONE}/skip-next", response_model=Answer[OrgSchedule], responses=refusals(404, 409))
def keep_next(org_schedule_id: StartableSchedule, context: OrgContextDep) -> Response:
    """Undo the skip of the next due time."""
    return answer(keep_next_run(org_schedule_id, **context))


@router.post(
    f"{ONE}/run-now",
    status_code=202,
    response_model=Answer[Dispatched],
    responses=refusals(404, 409),
)
def run_now(
    org_schedule_id: StartableSchedule,
    request: Annotated[
        RunNowInput, json_body(RunNowInput, "Invalid run data", required=False, now=NOW)
    ],
    context: OrgContextDep,
    origins: CallOrigins,
    once: OncePerKey,
) -> Response:
    """Request a job now, also for a paused schedule; its next due time does not change. A caller
    gets one job per `Idempotency-Key`, without a time limit."""
    return once(
        lambda: answer(
            run_schedule_now(
                org_schedule_id,
                client_key=_stored_key(once),
                payload=request.payload,
                ignore_window=request.ignore_window,
                call_origins=origins,
                **context,
            ),
            status=202,
        )
    )


@router.post(
    f"{ONE}/backfill",
    status_code=202,
    response_model=Answer[Backfill],
    responses={
        **refusals(404, 409),
        200: {"model": Answer[Backfill], "description": "The result of a dry run"},
    },
)
def backfill(
    org_schedule_id: StartableSchedule,
    body: Annotated[JsonObject, json_body(BackfillInput, nights=NIGHTS)],
    context: OrgContextDep,
    origins: CallOrigins,
    once: OncePerKey,
) -> Response:
    """Request the jobs of a past period. With `dryRun`, only list them."""

    def work() -> Response:
        created = backfill_schedule(
            org_schedule_id,
            body,
            call_origins=origins,
            **context,
        )
        return answer(created, status=200 if created.dry_run else 202)

    return once(work)


def _stored_key(once: Idempotent) -> str | None:
    """The key of a caller as the schedule stores it: unique over all callers, and of limited length."""
    return (
        None
        if once.key is None
        else hashlib.sha256(f"{once.caller} {once.key}".encode()).hexdigest()
    )


@router.get(f"{ONE}/next", response_model=Answer[SchedulePreview], responses=refusals(404))
def coming(
    org_schedule_id: ScheduleInPath,
    within: OrgScopeDep,
    services: ServicesDep,
    after: After = None,
    count: OccurrenceCount = 10,
) -> Response:
    """List the coming due times, with the effects of clock changes."""
    return answer(
        coming_runs(
            org_schedule_id,
            within=within,
            database=services.database,
            clock=services.clock,
            count=count,
            after=after,
        )
    )


@router.get(f"{ONE}/fires", response_model=Following[ScheduleFire], responses=refusals(404))
def fires(
    org_schedule_id: ScheduleInPath,
    within: OrgScopeDep,
    database: DatabaseDep,
    after: AfterId = 0,
    limit: Limit = 50,
    newest: NewestFirst = False,
) -> Response:
    """List the past due times, oldest first, each with its job or the reason why there is none."""
    return following(
        database.read(fires_of, org_schedule_id, within, limit, after, newest_first=newest),
        limit,
    )


@router.get(f"{ONE}/log", response_model=Following[AuditEntry], responses=refusals(404))
def log(
    org_schedule_id: ScheduleInPath,
    within: OrgScopeDep,
    database: DatabaseDep,
    after: AfterId = 0,
    limit: Limit = 100,
    newest: NewestFirst = False,
) -> Response:
    """List the changes of the schedule with actor, time and reason, oldest first."""
    with database.reading() as session:
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


backfills = APIRouter(route_class=GuardedRoute, tags=["organisations' backfills"])
BACKFILLS = "/api/org-backfills"
ONE_BACKFILL = f"{BACKFILLS}/{{batch_id}}"


@backfills.get(BACKFILLS, response_model=Listing[Backfill], name="list_")
def show_backfills(  # noqa: PLR0913  the filters of the list, by name
    within: OrgScopeDep,
    database: DatabaseDep,
    *,
    limit: Limit = 50,
    offset: Offset = 0,
    org: OrgFilter = None,
    schedule: OrgScheduleFilter = None,
    status: Annotated[
        BatchState | None, Query(description="Only backfills with this status.")
    ] = None,
) -> Response:
    """List the backfills, newest first, each with the number of its jobs per status."""
    return listed(
        database.read(
            list_backfills,
            within,
            org_id=org,
            schedule_id=schedule,
            status=status,
            limit=limit,
            offset=offset,
        ),
        limit,
        offset,
    )


@backfills.get(ONE_BACKFILL, response_model=Answer[Backfill], responses=refusals(404), name="show")
def show_backfill(batch_id: IdInPath, within: OrgScopeDep, database: DatabaseDep) -> Response:
    """Show one backfill. Its jobs: `/api/org-jobs?batch=`."""
    return answer(database.read(get_backfill, batch_id, within))


@backfills.post(
    f"{ONE_BACKFILL}/cancel",
    response_model=Answer[Backfill],
    responses=refusals(404, 409),
    name="cancel",
)
def cancel_jobs(
    batch_id: IdInPath,
    given: Annotated[
        ReasonInput,
        json_body(ReasonInput, "Invalid cancel data", required=False, mistaken=MISTAKEN),
    ],
    context: OrgContextDep,
) -> Response:
    """Cancel its jobs that have not started, and ask running jobs to stop. Safe to repeat."""
    return answer(cancel_backfill(batch_id, reason=given.reason, **context))
