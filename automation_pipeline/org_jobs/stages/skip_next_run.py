"""Leave out the next run of a schedule, once."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule
from automation_pipeline.org_jobs.domain.pause_wish import read_skip
from automation_pipeline.org_jobs.domain.states import ScheduleState
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.schedule_writes import tell, touch
from automation_pipeline.org_jobs.store.schedules import as_schedule, locked_schedule
from automation_pipeline.storage.database import Database


def skip_next_run(
    schedule_id: str, *, within: Within, database: Database, clock: Clock, actor: str, reason: str | None = None
) -> OrgSchedule:
    """Asked again, the newest reason holds. ConflictError: no run of it is due."""
    wish = read_skip(reason)
    with database.transaction() as session:
        row, now = locked_schedule(session, schedule_id, within), clock.now()
        if row.state != ScheduleState.ACTIVE:
            raise ConflictError(f"Schedule {schedule_id} is {row.state}: it has no next run to leave out.")
        if row.skip_next_run and wish.reason in {None, row.skip_next_run_reason}:
            return as_schedule(row)
        row.skip_next_run, row.skip_next_run_reason, row.skip_next_run_requested_at = True, wish.reason, now
        touch(row, now)
        tell(session, row, "skip_next", actor=actor, now=now, after={"skipNextRun": True}, reason=wish.reason)
        return as_schedule(row)
