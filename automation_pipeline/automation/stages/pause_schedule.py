"""Take a schedule out of use for a while. The run that is at work goes on."""

from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.store.schedules import change_schedule, get_schedule, lock_schedule
from automation_pipeline.core.clock import Clock
from automation_pipeline.storage.database import Database


def pause_schedule(schedule_id: int, *, database: Database, clock: Clock, reason: str | None = None) -> Schedule:
    """One that is paused already keeps its reason."""
    with database.transaction() as session:
        if lock_schedule(session, schedule_id).is_active:
            change_schedule(session, schedule_id, {"is_active": False, "paused_reason": reason}, clock.now())
        return get_schedule(session, schedule_id)
