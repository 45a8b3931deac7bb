"""Take a paused schedule into use again."""

from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.domain.schedule_changes import resumption
from automation_pipeline.automation.store.schedules import change_schedule, get_schedule, lock_schedule
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database


def resume_schedule(schedule_id: int, *, database: Database, clock: Clock) -> Schedule:
    """What fell due during the pause is not caught up with. One that is active already stays as it is."""
    with database.transaction() as session:
        if not lock_schedule(session, schedule_id).is_active:
            now = clock.now()
            change_schedule(session, schedule_id, resumption(now), now)
        return get_schedule(session, schedule_id)
