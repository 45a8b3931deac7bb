"""Delete a schedule. Its runs, their outcomes, logs, audits and events stay readable."""

from automation_pipeline.automation.store.schedules import lock_schedule, mark_deleted, unended_runs
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.storage.database import Database


def delete_schedule(schedule_id: int, *, database: Database) -> None:
    """ConflictError while a run of it waits or is at work."""
    with database.transaction() as session:
        lock_schedule(session, schedule_id)
        runs = unended_runs(session, schedule_id)
        if runs:
            raise ConflictError(
                f"Schedule {schedule_id} cannot be deleted while run {runs[0]} is not over: "
                f"wait for its end, or end it by `automation runs cancel {runs[0]}`"
            )
        mark_deleted(session, schedule_id)
