"""HTTP endpoints of runs, their outcomes, logs and reports."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from automation_pipeline.api.bodies import json_body
from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.idempotency import OncePerKey
from automation_pipeline.api.parameters import (
    DatabaseDep,
    IdInPath,
    Limit,
    Offset,
    ReachDep,
    ServicesDep,
)
from automation_pipeline.api.permissions import Entity
from automation_pipeline.api.responses import (
    Answer,
    CamelModel,
    Done,
    Listing,
    answer,
    answer_with,
    listed,
    refusals,
)
from automation_pipeline.api.scopes import check_in_reach, check_parsed_selection
from automation_pipeline.automation.models.runs import (
    FicheOutcome,
    OutcomeStatus,
    Phase,
    Run,
    RunFilter,
    RunStatus,
)
from automation_pipeline.automation.models.schedules import KnownId, SelectionInput
from automation_pipeline.automation.queries.ledger import outcomes_within
from automation_pipeline.automation.queries.reports import report_document, run_report
from automation_pipeline.automation.queries.run_details import (
    logs_after,
    run_detail,
    runs_within,
)
from automation_pipeline.automation.queries.runs import get_run
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.runs import cancel_run, request_run, retry_run
from automation_pipeline.core.events import LogLevel
from automation_pipeline.core.json_model import LARGEST_ID, Instant, JsonModel


class LogShown(CamelModel):
    id: str
    timestamp: Instant
    level: Literal["debug", "info", "warning", "error"]
    message: str
    metadata: dict[str, Any]  # Any: JSON


class ProgressShown(CamelModel):
    """The number of fiches that have reached each step."""

    selected: int
    fetched: int
    to_work: int
    transcribed: int
    audited: int
    ended: int
    audits: int


class PhaseShown(BaseModel):
    phase: Phase
    seconds: float


class NotificationShown(CamelModel):
    channel: str
    target: str
    status: str
    attempts: int
    status_code: int | None
    last_error: str | None
    sent_at: str | None


class RunDetail(Run):
    """A run with its progress, the reasons of ignored and failed fiches, its notifications, and its
    first log lines."""

    config_snapshot: dict[str, Any]  # Any: JSON
    result_summary: dict[str, Any] | None
    progress: ProgressShown
    phases: list[PhaseShown]
    reasons: dict[str, dict[str, int]]
    notifications: list[NotificationShown]
    logs: list[LogShown]


class Triggered(BaseModel):
    success: Literal[True] = True
    message: Literal["Automation triggered successfully"] = "Automation triggered successfully"
    schedule_id: str
    run_id: str = Field(
        description="The run's id. Its events are at /api/automation/runs/{run_id}/events."
    )
    event_ids: list[str]


class Retried(Done):
    schedule_id: str
    run_id: str
    retry_of_run_id: str


class CancelInput(JsonModel):
    reason: str | None = Field(default=None, max_length=1000)


class TriggerInput(JsonModel):
    """The selection replaces the schedule's selection as a whole, for this run."""

    schedule_id: KnownId
    override_fiche_selection: SelectionInput | None = None


router = APIRouter(route_class=GuardedRoute, tags=["runs"])
PATH = "/api/automation/runs"
FIRST_LOGS = 100
TRIGGER_EXAMPLE: Mapping[str, object] = {
    "scheduleId": "3",
    "overrideFicheSelection": {"mode": "manual", "ficheIds": ["1900417", "1900418"]},
}
After = Annotated[
    int, Query(ge=0, le=LARGEST_ID, description="Only lines after the line with this id.")
]
Statuses = Annotated[
    list[RunStatus] | None, Query(description="Only runs with this status; may be repeated.")
]


@router.post("/api/automation/trigger", response_model=Triggered, responses=refusals(404, 409))
def trigger(
    wanted: Annotated[
        TriggerInput,
        json_body(TriggerInput, "Invalid trigger automation data", chosen=TRIGGER_EXAMPLE),
    ],
    reach: ReachDep,
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Request a run. Dagster's daemon starts it within seconds; the answer contains its id."""
    check_in_reach(Entity.SCHEDULE, str(wanted.schedule_id), reach, services.database)
    override = wanted.override_fiche_selection
    if override is not None:
        check_parsed_selection(override, reach, services.database)

    def work() -> Response:
        run = request_run(
            wanted.schedule_id,
            database=services.database,
            clock=services.clock,
            override=override,
            lost_after_seconds=services.settings.automation_lost_after_seconds,
        )
        return answer_with(
            message="Automation triggered successfully",
            schedule_id=str(run.schedule_id),
            run_id=str(run.id),
            event_ids=[f"automation-run-{run.id}"],
        )

    return once(work)


@router.get(PATH, response_model=Listing[Run])
def list_(
    reach: ReachDep,
    database: DatabaseDep,
    status: Statuses = None,
    limit: Limit = 20,
    offset: Offset = 0,
) -> Response:
    """List the runs of all schedules, newest first."""
    chosen = RunFilter(status=status or ())
    return listed(
        database.read(runs_within, reach, chosen, limit=limit, offset=offset), limit, offset
    )


@router.get(
    "/api/automation/schedules/{schedule_id}/runs",
    response_model=Listing[Run],
    responses=refusals(404),
)
def of_schedule(
    schedule_id: IdInPath,
    reach: ReachDep,
    database: DatabaseDep,
    status: Statuses = None,
    limit: Limit = 20,
    offset: Offset = 0,
) -> Response:
    """List the runs of one schedule, newest first."""
    with database.reading() as session:
        get_schedule(session, schedule_id)
        chosen = RunFilter(schedule_id, status or ())
        runs = runs_within(session, reach, chosen, limit=limit, offset=offset)
    return listed(runs, limit, offset)


@router.get(f"{PATH}/{{run_id}}", response_model=Answer[RunDetail], responses=refusals(404))
def show(run_id: IdInPath, reach: ReachDep, database: DatabaseDep) -> Response:
    """Show one run: its status, its progress, the reasons of ignored and failed fiches, and its
    first log lines."""
    detail = database.read(run_detail, run_id, first_logs=FIRST_LOGS, with_fiche_ids=reach.is_whole)
    return answer(detail)


@router.get(f"{PATH}/{{run_id}}/logs", response_model=Listing[LogShown], responses=refusals(404))
def logs(  # noqa: PLR0913  the filters of the list, by name
    run_id: IdInPath,
    reach: ReachDep,
    database: DatabaseDep,
    *,
    level: LogLevel = LogLevel.DEBUG,
    after: After = 0,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List the log lines of a run with at least the given level, oldest first."""
    with database.reading() as session:
        get_run(session, run_id)
        lines = logs_after(
            session,
            run_id,
            after,
            level,
            limit=limit,
            offset=offset,
            with_details=reach.is_whole,
        )
    return listed(lines, limit, offset)


@router.get(
    f"{PATH}/{{run_id}}/fiches", response_model=Listing[FicheOutcome], responses=refusals(404)
)
def fiches(
    run_id: IdInPath,
    reach: ReachDep,
    database: DatabaseDep,
    status: OutcomeStatus | None = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """List the outcomes of the run's fiches, in the order of selection."""
    with database.reading() as session:
        get_run(session, run_id)
        found = outcomes_within(session, run_id, reach, status=status, limit=limit, offset=offset)
    return listed(found, limit, offset)


@router.post(f"{PATH}/{{run_id}}/cancel", response_model=Answer[Run], responses=refusals(404, 409))
def cancel(
    run_id: IdInPath,
    given: Annotated[
        CancelInput,
        json_body(
            CancelInput,
            "Invalid cancel data",
            required=False,
            wrong_day={"reason": "The wrong day was picked"},
        ),
    ],
    services: ServicesDep,
    once: OncePerKey,
) -> Response:
    """Cancel a waiting or active run; its unfinished fiches are ignored. Dagster stops within
    seconds."""
    return once(
        lambda: answer(
            cancel_run(
                run_id, reason=given.reason, database=services.database, clock=services.clock
            )
        )
    )


@router.post(f"{PATH}/{{run_id}}/retry", response_model=Retried, responses=refusals(404, 409))
def retry(run_id: IdInPath, services: ServicesDep, once: OncePerKey) -> Response:
    """Request a new run over the fiches that failed in this run or, if it was cancelled, did not
    finish."""

    def work() -> Response:
        run = retry_run(run_id, database=services.database, clock=services.clock)
        return answer_with(
            message="Retry requested",
            schedule_id=str(run.schedule_id),
            run_id=str(run.id),
            retry_of_run_id=str(run_id),
        )

    return once(work)


@router.get(
    "/api/automation/runs/{run_id}/report",
    response_model=Answer[dict[str, Any]],  # Any: JSON
    responses=refusals(404),
)
def report(run_id: IdInPath, reach: ReachDep, database: DatabaseDep) -> Response:
    """Show the report of a run, including the quotations of its audits. `automation runs report`
    writes the same data as an HTML page."""
    if not reach.is_whole:
        raise AuthorizationError("The report shows every fiche of the run: it needs the scope ALL")
    return answer(report_document(database.read(run_report, run_id)))
