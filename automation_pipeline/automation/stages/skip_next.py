"""Leave out the next occurrence of a schedule."""

from datetime import datetime

from automation_pipeline.automation.domain.occurrences import next_to_skip
from automation_pipeline.automation.domain.schedule import ScheduleType
from automation_pipeline.automation.store.schedules import change_schedule, lock_schedule
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.storage.database import Database


def skip_next(schedule_id: int, *, database: Database, clock: Clock) -> datetime:
    """The occurrence that is left out now, after those left out before. ConflictError if none would come."""
    now = clock.now()
    with database.transaction() as session:
        schedule = lock_schedule(session, schedule_id)
        if schedule.schedule_type is ScheduleType.MANUAL:
            raise ConflictError(f"Schedule {schedule_id} is MANUAL: it has no next occurrence to skip")
        due_at = next_to_skip(schedule, now)
        if due_at is None:
            raise ConflictError(f"Schedule {schedule_id} is not active: it has no next occurrence to skip")
        change_schedule(session, schedule_id, {"skip_due_at": due_at}, now)
    return due_at
