"""Ask for a run of a schedule: its row and the request for it are filed together, so that its id is known at once."""

from automation_pipeline.automation.domain.run import Run, Trigger
from automation_pipeline.automation.domain.selection import FicheSelection
from automation_pipeline.automation.store.runs import add_run, as_run
from automation_pipeline.automation.store.schedules import lock_for_new_run
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunWish, file_requests

JOB = "automation_run"


def request_run(
    schedule_id: int,
    *,
    database: Database,
    clock: Clock,
    override: FicheSelection | None = None,
    trigger: Trigger = Trigger.MANUAL,
    retry_of: int | None = None,
) -> Run:
    """`retry_of`: the run whose failures this one takes up again. ConflictError: it is paused, or has a run already."""
    now = clock.now()
    with database.transaction() as session:
        schedule = lock_for_new_run(session, schedule_id)
        row = add_run(session, schedule, trigger, now, override=override)
        row.request_key = key = f"automation-run-{row.id}"
        row.retry_of_run_id = retry_of
        tags = {
            "automation/schedule_id": str(schedule_id),
            "automation/run_id": str(row.id),
            "automation/trigger": trigger,
        }
        wish = RunWish(key, JOB, {"schedule_id": schedule_id, "run_id": row.id}, tags)
        file_requests(session, [wish], now)
        return as_run(row)
