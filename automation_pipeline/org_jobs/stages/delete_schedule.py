"""Take a schedule away for good. Its fires and jobs stay to be looked at; what is at work goes on to its end."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.domain.org_schedule import input_document
from automation_pipeline.org_jobs.domain.schedule_changes import Standing
from automation_pipeline.org_jobs.domain.states import ScheduleState
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.schedule_writes import cancel_waiting, settle, tell
from automation_pipeline.org_jobs.store.schedules import as_schedule, locked_schedule
from automation_pipeline.storage.database import Database

DELETED = "Its schedule was deleted."


def delete_schedule(schedule_id: str, *, within: Within, database: Database, clock: Clock, actor: str) -> None:
    """Jobs of it that nobody has begun are cancelled. Afterwards it is not found."""
    with database.transaction() as session:
        row, now = locked_schedule(session, schedule_id, within), clock.now()
        cancel_waiting(session, row.id, actor=actor, now=now, reason=DELETED)
        before = input_document(as_schedule(row))
        row.deleted_at, row.paused_until, row.is_suspended = now, None, False
        state = ScheduleState(row.state)
        standing = Standing(ScheduleState.PAUSED if state is ScheduleState.ACTIVE else state)
        settle(session, row, standing, actor=actor, now=now, reason=DELETED)
        tell(session, row, "delete", actor=actor, now=now, before=before)
