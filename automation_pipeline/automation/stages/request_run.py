"""Ask for a run of a schedule: its row and the request for it are filed together, so that its id is known at once."""

from datetime import datetime

from automation_pipeline.automation.domain.at_work import LOST_AFTER_SECONDS
from automation_pipeline.automation.domain.run import Run, Trigger
from automation_pipeline.automation.domain.selection import FicheSelection
from automation_pipeline.automation.stages.reconcile_stale_runs import close_lost_runs
from automation_pipeline.automation.store.runs import add_run, as_run
from automation_pipeline.automation.store.schedules import lock_for_new_run
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.run_requests import RunWish, file_requests

JOB = "automation_run"


def manual_run_key(run_id: int) -> str:
    """The key of the request for a run that was asked for by hand."""
    return f"automation-run-{run_id}"


def request_run(  # noqa: PLR0913  what a run may be asked to be
    schedule_id: int,
    *,
    database: Database,
    clock: Clock,
    override: FicheSelection | None = None,
    trigger: Trigger = Trigger.MANUAL,
    due_at: datetime | None = None,
    retry_of: int | None = None,
    lost_after_seconds: float = LOST_AFTER_SECONDS,
) -> Run:
    """`retry_of`: the run that this one takes up again. ConflictError: the schedule is paused, or has a run already."""
    close_lost_runs(schedule_id, lost_after_seconds, database=database, clock=clock)
    now = clock.now()
    with database.transaction() as session:
        schedule = lock_for_new_run(session, schedule_id)
        row = add_run(session, schedule, trigger, now, override=override, due_at=due_at, retry_of=retry_of)
        file_run_request(session, row, now)
        return as_run(row)


def file_run_request(session: Session, row: RunRow, now: datetime, launch: int = 1) -> None:
    """For a run that has no request yet."""
    row.request_key = key = manual_run_key(row.id)
    tags = {
        "automation/schedule_id": str(row.schedule_id),
        "automation/run_id": str(row.id),
        "automation/trigger": row.trigger,
    }
    wish = RunWish(key, JOB, {"schedule_id": row.schedule_id, "run_id": row.id}, tags, launch)
    file_requests(session, [wish], now)
