"""Take back that the next run of a schedule is left out."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.schedule_writes import tell, touch
from automation_pipeline.org_jobs.store.schedules import as_schedule, locked_schedule
from automation_pipeline.storage.database import Database


def keep_next_run(schedule_id: str, *, within: Within, database: Database, clock: Clock, actor: str) -> OrgSchedule:
    """Where nothing is left out, nothing changes."""
    with database.transaction() as session:
        row, now = locked_schedule(session, schedule_id, within), clock.now()
        if not row.skip_next_run:
            return as_schedule(row)
        before = {"skipNextRun": True, "skipNextRunReason": row.skip_next_run_reason}
        row.skip_next_run, row.skip_next_run_reason, row.skip_next_run_requested_at = False, None, None
        touch(row, now)
        tell(session, row, "keep_next", actor=actor, now=now, before=before, after={"skipNextRun": False})
        return as_schedule(row)
