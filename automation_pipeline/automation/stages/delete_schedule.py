"""Delete a schedule, and all that its runs have left behind but the audits."""

from automation_pipeline.automation.store.schedules import delete_schedule_row, lock_schedule, unended_runs
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
        delete_schedule_row(session, schedule_id)
