"""What can be done with an organisation's schedule: pause it, leave out its next run, run it now or for a period."""

import hashlib

from fastapi import APIRouter
from starlette.responses import Response

from automation_pipeline.api.bodies import OptionalBody, TheBody
from automation_pipeline.api.context import TheCaller, TheServices
from automation_pipeline.api.documented import takes
from automation_pipeline.api.envelope import Answer, answer, refusals
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.once import DoneOnce, Once
from automation_pipeline.api.org_answers import shown_schedule
from automation_pipeline.api.org_queries import ScheduleInPath
from automation_pipeline.api.org_scopes import TheWithin, check_may_run
from automation_pipeline.api.schemas.org_schedules import (
    EVENT,
    HOLIDAYS,
    NIGHTS,
    NOW,
    RunNowInput,
)
from automation_pipeline.core.json_model import as_document, parse
from automation_pipeline.org_jobs.domain.backfill import Backfill, BackfillInput
from automation_pipeline.org_jobs.domain.org_schedule import Dispatched, OrgSchedule
from automation_pipeline.org_jobs.domain.pause_wish import PauseWish, SkipWish
from automation_pipeline.org_jobs.stages.backfill_schedule import backfill_schedule
from automation_pipeline.org_jobs.stages.keep_next_run import keep_next_run
from automation_pipeline.org_jobs.stages.pause_schedule import pause_schedule
from automation_pipeline.org_jobs.stages.resume_schedule import resume_schedule
from automation_pipeline.org_jobs.stages.run_schedule_now import run_schedule_now
from automation_pipeline.org_jobs.stages.skip_next_run import skip_next_run

router = APIRouter(route_class=GuardedRoute, tags=["organisations' schedules"])
ONE = "/api/org-schedules/{org_schedule_id}"


@router.post(
    f"{ONE}/pause",
    response_model=Answer[OrgSchedule],
    responses=refusals(404, 409),
    openapi_extra=takes(PauseWish, required=False, holidays=HOLIDAYS),
)
def pause(
    org_schedule_id: ScheduleInPath, body: OptionalBody, within: TheWithin, caller: TheCaller, services: TheServices
) -> Response:
    """Begin no more jobs of it until it is resumed, or until the instant that is named. What is at work goes on.

    With `until` it takes what resuming it takes.
    """
    wish = parse(PauseWish, body, "Invalid pause data")
    if wish.until is not None:
        check_may_run(caller, org_schedule_id, within, services.database)
    paused = pause_schedule(
        org_schedule_id,
        within=within,
        database=services.database,
        clock=services.clock,
        actor=caller.id,
        reason=wish.reason,
        until=wish.until,
    )
    return shown_schedule(paused)


@router.post(f"{ONE}/resume", response_model=Answer[OrgSchedule], responses=refusals(404, 409))
def resume(org_schedule_id: ScheduleInPath, within: TheWithin, caller: TheCaller, services: TheServices) -> Response:
    """Take a paused schedule into use again, from now on. What fell due during the pause is not made up for."""
    check_may_run(caller, org_schedule_id, within, services.database)
    resumed = resume_schedule(
        org_schedule_id, within=within, database=services.database, clock=services.clock, actor=caller.id
    )
    return shown_schedule(resumed)


@router.post(
    f"{ONE}/skip-next",
    response_model=Answer[OrgSchedule],
    responses=refusals(404, 409),
    openapi_extra=takes(SkipWish, required=False, tournament=EVENT),
)
def skip_next(
    org_schedule_id: ScheduleInPath, body: OptionalBody, within: TheWithin, caller: TheCaller, services: TheServices
) -> Response:
    """Leave out the next time that it is due. Safe to repeat: it is the same time that is left out."""
    skipping = skip_next_run(
        org_schedule_id,
        within=within,
        database=services.database,
        clock=services.clock,
        actor=caller.id,
        reason=parse(SkipWish, body, "Invalid skip data").reason,
    )
    return shown_schedule(skipping)


@router.delete(f"{ONE}/skip-next", response_model=Answer[OrgSchedule], responses=refusals(404, 409))
def keep_next(org_schedule_id: ScheduleInPath, within: TheWithin, caller: TheCaller, services: TheServices) -> Response:
    """Do not leave out the next time after all."""
    check_may_run(caller, org_schedule_id, within, services.database)
    keeping = keep_next_run(
        org_schedule_id, within=within, database=services.database, clock=services.clock, actor=caller.id
    )
    return shown_schedule(keeping)


@router.post(
    f"{ONE}/run-now",
    status_code=202,
    response_model=Answer[Dispatched],
    responses=refusals(404, 409),
    openapi_extra=takes(RunNowInput, required=False, now=NOW),
)
def run_now(
    org_schedule_id: ScheduleInPath,
    body: OptionalBody,
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
    once: DoneOnce,
) -> Response:
    """Ask for a job of it now, of a paused one too; when it is due next stays as it is.

    Under one `Idempotency-Key` a caller gets one job, however late it asks again.
    """
    wish = parse(RunNowInput, body, "Invalid run data")
    check_may_run(caller, org_schedule_id, within, services.database)

    def work() -> Response:
        dispatched = run_schedule_now(
            org_schedule_id,
            within=within,
            database=services.database,
            clock=services.clock,
            actor=caller.id,
            client_key=_for_ever(once),
            payload=wish.payload,
            ignore_window=wish.ignore_window,
            call_origins=services.settings.org_jobs_https_allowed_origins,
        )
        return answer(as_document(dispatched), status=202)

    return once(work)


@router.post(
    f"{ONE}/backfill",
    status_code=202,
    response_model=Answer[Backfill],
    responses={**refusals(404, 409), 200: {"model": Answer[Backfill], "description": "What would be done"}},
    openapi_extra=takes(BackfillInput, nights=NIGHTS),
)
def backfill(
    org_schedule_id: ScheduleInPath,
    body: TheBody,
    within: TheWithin,
    caller: TheCaller,
    services: TheServices,
    once: DoneOnce,
) -> Response:
    """Ask for the jobs of a period that is over. With `dryRun`, only say which those are."""
    check_may_run(caller, org_schedule_id, within, services.database)

    def work() -> Response:
        made = backfill_schedule(
            org_schedule_id,
            body,
            within=within,
            database=services.database,
            clock=services.clock,
            actor=caller.id,
            call_origins=services.settings.org_jobs_https_allowed_origins,
        )
        return answer(as_document(made), status=200 if made.dry_run else 202)

    return once(work)


def _for_ever(once: Once) -> str | None:
    """A caller's key as the schedule keeps it, whose keys are of all callers and no longer than this."""
    return None if once.key is None else hashlib.sha256(f"{once.caller} {once.key}".encode()).hexdigest()
