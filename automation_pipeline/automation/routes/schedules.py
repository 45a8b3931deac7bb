"""HTTP endpoints of schedules."""

from collections.abc import Mapping
from datetime import date, datetime
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from automation_pipeline.api.bodies import JsonObject, json_body
from automation_pipeline.api.errors import upstream_errors
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import OncePerKey
from automation_pipeline.api.parameters import (
    CallerDep,
    DatabaseDep,
    IdInPath,
    Limit,
    Offset,
    ReachDep,
    ServicesDep,
)
from automation_pipeline.api.responses import Answer, Done, answer, answer_with, refusals
from automation_pipeline.api.scopes import check_selection, with_creator, without_creator
from automation_pipeline.automation.models.runs import Run, RunFilter
from automation_pipeline.automation.models.schedules import OccurrenceShown, Schedule, ScheduleInput
from automation_pipeline.automation.queries.due import decided_occurrences
from automation_pipeline.automation.queries.run_details import runs_within, schedules_within
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.rules.schedules import (
    FIRST_YEAR,
    LAST_YEAR,
    ScheduleShown,
    occurrences_after,
    parse_start,
    schedule_document,
)
from automation_pipeline.automation.schedules import (
    INVALID_BACKFILL,
    ScheduleBackfill,
    backfill_schedule,
    create_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    skip_next,
    update_schedule,
)
from automation_pipeline.automation.selection import SelectionPreview, preview_schedule
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.clock import iso
from automation_pipeline.core.json_model import Instant, JsonModel, as_document

SCHEDULE_EXAMPLE: Mapping[str, object] = {
    "name": "Nightly audit",
    "scheduleType": "DAILY",
    "timeOfDay": "02:00",
    "timezone": "Europe/Paris",
    "ficheSelection": {"mode": "date_range", "dateRange": "yesterday", "groupes": ["TEAM R1"]},
}
CHANGE_EXAMPLE: Mapping[str, object] = {"timeOfDay": "03:30", "description": None}


class ScheduleWithRuns(ScheduleShown):
    runs: list[Run]


class ScheduleList(Answer[list[ScheduleShown]]):
    count: int


class PauseInput(JsonModel):
    reason: str | None = Field(default=None, max_length=1000)


class DayBackfillInput(JsonModel):
    """The days of sales, and whether the request only shows what it would file."""

    first: date = Field(alias="from", examples=["2026-05-01"])
    last: date = Field(alias="to", examples=["2026-05-03"])
    dry_run: bool = False


class Skipped(BaseModel):
    id: str = Field(examples=["3"])
    skipped: Instant


class Coming(BaseModel):
    occurrences: list[Instant]


router = APIRouter(route_class=GuardedRoute, tags=["schedules"])
PATH = "/api/automation/schedules"
LAST_RUNS = 10
After = Annotated[
    Annotated[datetime, AfterValidator(parse_start)] | None,
    Query(
        description=f"Start from this instant instead of now, in the years {FIRST_YEAR} to {LAST_YEAR}."
    ),
]


@router.post(PATH, status_code=201, response_model=Answer[ScheduleShown], responses=refusals(409))
def create(
    body: Annotated[JsonObject, json_body(ScheduleInput, nightly=SCHEDULE_EXAMPLE)],
    caller: CallerDep,
    reach: ReachDep,
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Store a new schedule."""
    given = with_creator(body, caller)

    def work() -> Response:
        check_selection(given.get("ficheSelection"), reach, services.database)
        return _schedule_answer(
            create_schedule(
                given,
                database=services.database,
                clock=services.clock,
                webhook_origins=services.settings.webhook_allowed_origins,
            ),
            services,
            status=201,
        )

    return once(work)


@router.get(PATH, response_model=ScheduleList)
def list_(
    reach: ReachDep,
    services: ServicesDep,
    *,
    include_inactive: bool = False,
    limit: Limit = 1000,
    offset: Offset = 0,
) -> Response:
    """List the schedules, newest first."""
    found = services.database.read(
        schedules_within, reach, include_inactive=include_inactive, limit=limit, offset=offset
    )
    now = services.clock.now()
    return answer([schedule_document(schedule, now) for schedule in found], count=len(found))


@router.get(
    f"{PATH}/{{schedule_id}}", response_model=Answer[ScheduleWithRuns], responses=refusals(404)
)
def show(schedule_id: IdInPath, reach: ReachDep, services: ServicesDep) -> Response:
    """Show one schedule with its last runs."""
    with services.database.reading() as session:
        schedule = get_schedule(session, schedule_id)
        last = runs_within(session, reach, RunFilter(schedule_id), limit=LAST_RUNS, offset=0)
    return answer(
        {
            **schedule_document(schedule, services.clock.now()),
            "runs": [as_document(run) for run in last],
        }
    )


@router.patch(
    f"{PATH}/{{schedule_id}}", response_model=Answer[ScheduleShown], responses=refusals(404, 409)
)
def update(
    schedule_id: IdInPath,
    body: Annotated[JsonObject, json_body(ScheduleInput, partial=True, later=CHANGE_EXAMPLE)],
    caller: CallerDep,
    reach: ReachDep,
    services: ServicesDep,
) -> Response:
    """Change the fields that the request names. Null clears a field; a selection is replaced as a
    whole."""
    if "ficheSelection" in body:
        check_selection(body["ficheSelection"], reach, services.database)
    return _schedule_answer(
        update_schedule(
            schedule_id,
            without_creator(body, caller),
            database=services.database,
            clock=services.clock,
            webhook_origins=services.settings.webhook_allowed_origins,
        ),
        services,
    )


@router.delete(f"{PATH}/{{schedule_id}}", response_model=Done, responses=refusals(404, 409))
def delete(schedule_id: IdInPath, database: DatabaseDep) -> Response:
    """Delete a schedule. Its runs with their outcomes, logs and audits stay readable."""
    delete_schedule(schedule_id, database=database)
    return answer_with(message="Schedule deleted successfully")


@router.post(
    f"{PATH}/{{schedule_id}}/pause",
    response_model=Answer[ScheduleShown],
    responses=refusals(404, 409),
)
def pause(
    schedule_id: IdInPath,
    given: Annotated[
        PauseInput,
        json_body(
            PauseInput,
            "Invalid pause data",
            required=False,
            holidays={"reason": "Closed until January"},
        ),
    ],
    services: ServicesDep,
) -> Response:
    """Start no more runs of the schedule until it is resumed. An active run continues."""
    return _schedule_answer(
        pause_schedule(
            schedule_id, database=services.database, clock=services.clock, reason=given.reason
        ),
        services,
    )


@router.post(
    f"{PATH}/{{schedule_id}}/resume",
    response_model=Answer[ScheduleShown],
    responses=refusals(404, 409),
)
def resume(schedule_id: IdInPath, services: ServicesDep) -> Response:
    """Resume a paused schedule. Due times during the pause do not run."""
    return _schedule_answer(
        resume_schedule(schedule_id, database=services.database, clock=services.clock), services
    )


@router.post(
    f"{PATH}/{{schedule_id}}/skip-next",
    response_model=Answer[Skipped],
    responses=refusals(404, 409),
)
def skip(schedule_id: IdInPath, services: ServicesDep, once: OncePerKey) -> Response:
    """Skip the next occurrence; a second call also skips the one after it."""

    def work() -> Response:
        due_at = skip_next(schedule_id, database=services.database, clock=services.clock)
        return answer({"id": str(schedule_id), "skipped": iso(due_at)})

    return once(work)


@router.post(
    f"{PATH}/{{schedule_id}}/backfill",
    response_model=Answer[ScheduleBackfill],
    responses=refusals(404, 409),
)
def backfill(
    schedule_id: IdInPath,
    wanted: Annotated[
        DayBackfillInput,
        json_body(
            DayBackfillInput,
            INVALID_BACKFILL,
            first_days_of_may={"from": "2026-05-01", "to": "2026-05-03", "dryRun": True},
        ),
    ],
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """File one run per day of a range, each day once. A repeated call files what is missing."""
    return once(
        lambda: answer(
            backfill_schedule(
                schedule_id,
                wanted.first,
                wanted.last,
                database=services.database,
                clock=services.clock,
                dry_run=wanted.dry_run,
            )
        )
    )


@router.get(
    f"{PATH}/{{schedule_id}}/preview",
    response_model=Answer[SelectionPreview],
    responses=refusals(404, 502),
)
async def preview(schedule_id: IdInPath, reach: ReachDep, services: ServicesDep) -> Response:
    """Show what a run would select and drop now, and why. The preview writes nothing; it requests
    the sales lists from the CRM."""
    schedule = await run_in_threadpool(services.database.read, get_schedule, schedule_id)
    with upstream_errors():
        shown = await preview_schedule(
            schedule_id,
            database=services.database,
            source=services.crm_with(schedule.external_api_key),
            clock=services.clock,
            semaphore=services.sales_list_semaphore,
            default_max_recordings=services.settings.automation_max_recordings_per_fiche,
        )
    return answer(shown if reach.is_whole else shown.without_fiches())


@router.get(f"{PATH}/{{schedule_id}}/next", response_model=Answer[Coming], responses=refusals(404))
def coming(
    schedule_id: IdInPath,
    services: ServicesDep,
    after: After = None,
    count: Annotated[int, Query(ge=1, le=1000)] = 10,
) -> Response:
    """List the coming occurrences."""
    schedule = services.database.read(get_schedule, schedule_id)
    following = occurrences_after(schedule, after or services.clock.now())
    return answer({"occurrences": [iso(at) for at in islice(following, count)]})


@router.get(
    f"{PATH}/{{schedule_id}}/occurrences",
    response_model=Answer[list[OccurrenceShown]],
    responses=refusals(404),
)
def occurrences(schedule_id: IdInPath, database: DatabaseDep, limit: Limit = 20) -> Response:
    """List the last due times with the run of each, or the reason for none."""
    with database.reading() as session:
        get_schedule(session, schedule_id)
        decided = decided_occurrences(session, schedule_id, limit)
    return answer(decided)


def _schedule_answer(schedule: Schedule, services: Services, *, status: int = 200) -> Response:
    return answer(schedule_document(schedule, services.clock.now()), status=status)
