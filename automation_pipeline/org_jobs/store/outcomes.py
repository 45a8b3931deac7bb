"""What the end of a job means to its schedule: counters, the last status, and a pause after too many failures."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.events import schedule_event
from automation_pipeline.org_jobs.domain.states import RunState, ScheduleState
from automation_pipeline.org_jobs.store.schedule_moves import move_schedule
from automation_pipeline.org_jobs.tables import ScheduleRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.outbox import enqueue

SCHEDULER = "scheduler"


@dataclass(frozen=True)
class JobOutcome:
    """`status` is one of those in which a run has ended for good, whether or not somebody wanted it cancelled."""

    schedule_id: str | None
    job_id: int
    status: RunState
    is_cancel_wanted: bool = False


def tell_schedules(session: Session, outcomes: Sequence[JobOutcome], now: datetime) -> None:
    """Each is told once. A job that was cancelled is neither a success nor a failure, and one that failed while it
    was to be stopped did so for a reason that is not the schedule's."""
    ids = {one.schedule_id for one in outcomes if one.schedule_id is not None}
    if not ids:
        return
    query = select(ScheduleRow).where(among(session, ScheduleRow.id, ids)).order_by(ScheduleRow.id).with_for_update()
    rows = {row.id: row for row in session.scalars(query.execution_options(populate_existing=True))}
    for one in outcomes:
        row = rows.get(one.schedule_id or "")
        if row is None:
            continue
        if row.last_run_job_id == one.job_id:
            row.last_job_status = one.status
        if one.status is RunState.SUCCESS:
            row.consecutive_failures = 0
        elif one.status is RunState.FAILED and not one.is_cancel_wanted:
            note_failure(session, row, now)


def note_failure(session: Session, row: ScheduleRow, now: datetime) -> None:
    """Of a schedule that is locked: counted once, and too many in a row pause it."""
    row.failure_count += 1
    row.consecutive_failures += 1
    is_too_many = 0 < row.auto_pause_after <= row.consecutive_failures
    if is_too_many and row.state == ScheduleState.ACTIVE and row.deleted_at is None:
        reason = f"{row.consecutive_failures} failures in a row"
        row.enabled, row.pause_reason = False, reason
        move_schedule(session, row, ScheduleState.PAUSED, actor=SCHEDULER, now=now, reason=reason)
        payload = {"consecutiveFailures": row.consecutive_failures}
        enqueue(session, [schedule_event(row.org_id, row.id, "auto_paused", str(row.version), now, payload)])
