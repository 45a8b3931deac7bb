"""Take a schedule out of use, until somebody resumes it or until a time. The job that is at work goes on."""

from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.instants import iso
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule
from automation_pipeline.org_jobs.domain.pause_wish import read_pause
from automation_pipeline.org_jobs.domain.schedule_changes import Standing, refuse_pause
from automation_pipeline.org_jobs.domain.states import ScheduleState
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.schedule_writes import settle, tell
from automation_pipeline.org_jobs.store.schedules import as_schedule, locked_schedule
from automation_pipeline.storage.database import Database


def pause_schedule(  # noqa: PLR0913  the collaborators by name, and who wants what
    schedule_id: str,
    *,
    within: Within,
    database: Database,
    clock: Clock,
    actor: str,
    reason: str | None = None,
    until: datetime | None = None,
) -> OrgSchedule:
    """One that is paused already keeps its reason and its end, unless others are given. One that was paused with its
    organisation is not resumed with it any more."""
    now = clock.now()
    wish = read_pause(reason, until, now)
    with database.transaction() as session:
        row = locked_schedule(session, schedule_id, within)
        refuse_pause(ScheduleState(row.state))
        is_paused = row.state == ScheduleState.PAUSED and not row.enabled
        if is_paused and wish.reason is None and wish.until is None:
            return as_schedule(row)
        settle(session, row, Standing(ScheduleState.PAUSED), actor=actor, now=now, reason=wish.reason)
        row.enabled, row.is_suspended = False, False
        row.pause_reason, row.paused_until = wish.reason, wish.until
        after = {"state": row.state, "pausedUntil": None if wish.until is None else iso(wish.until)}
        tell(session, row, "pause", actor=actor, now=now, after=after, reason=wish.reason)
        return as_schedule(row)
