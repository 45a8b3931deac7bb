"""Take a schedule into use again. It is due from now on: what it missed is not made up for."""

from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule
from automation_pipeline.org_jobs.domain.schedule_changes import next_after
from automation_pipeline.org_jobs.domain.states import ScheduleState
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.domain.timing import Planned
from automation_pipeline.org_jobs.store.schedule_writes import set_going, tell
from automation_pipeline.org_jobs.store.schedules import as_schedule, locked_with_place
from automation_pipeline.org_jobs.store.timings import timing_of
from automation_pipeline.org_jobs.tables import ScheduleRow
from automation_pipeline.storage.database import Database


def resume_schedule(schedule_id: str, *, within: Within, database: Database, clock: Clock, actor: str) -> OrgSchedule:
    """One that is active already stays as it is. ConflictError: its organisation is suspended, or it is never due."""
    with database.transaction() as session:
        row, organisation = locked_with_place(session, schedule_id, within)
        if row.state == ScheduleState.ACTIVE:
            return as_schedule(row)
        if organisation.suspended_at is not None:
            raise ConflictError(f"Organisation '{row.org_id}' is suspended: resume it first.")
        now, before = clock.now(), {"state": row.state, "pauseReason": row.pause_reason}
        set_going(session, row, _planned(row, now), actor=actor, now=now)
        tell(session, row, "resume", actor=actor, now=now, before=before, after={"state": row.state})
        return as_schedule(row)


def _planned(row: ScheduleRow, now: datetime) -> Planned:
    try:
        planned = next_after(timing_of(row), now, row.last_scheduled_for)
    except InvalidInputError as error:
        raise ConflictError(f"Schedule {row.id} cannot be resumed before it is corrected: {error}") from None
    if planned is None:
        raise ConflictError(f"Schedule {row.id} is never due again: give it a later end, or another cron expression.")
    return planned
