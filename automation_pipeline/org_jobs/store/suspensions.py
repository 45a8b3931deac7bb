"""Schedules that are paused and resumed with their organisation, which whoever asks has locked."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.domain.events import schedule_event
from automation_pipeline.org_jobs.domain.schedule_changes import next_after
from automation_pipeline.org_jobs.domain.states import ScheduleState
from automation_pipeline.org_jobs.store.schedule_moves import move_schedule
from automation_pipeline.org_jobs.store.schedules import SUSPENDED_WORDS
from automation_pipeline.org_jobs.store.timings import timing_of
from automation_pipeline.org_jobs.tables import ScheduleRow
from automation_pipeline.storage.outbox import enqueue


def suspend_schedules(session: Session, org_id: str, actor: str, now: datetime, reason: str | None) -> int:
    """How many: all that are active."""
    rows = _locked(session, org_id, ScheduleRow.state == ScheduleState.ACTIVE)
    why = f"{SUSPENDED_WORDS} {reason}" if reason else SUSPENDED_WORDS
    for row in rows:
        row.is_suspended, row.pause_reason = True, why
        move_schedule(session, row, ScheduleState.PAUSED, actor=actor, now=now, reason=why)
    said = {"reason": why}
    enqueue(session, [schedule_event(org_id, row.id, "paused", str(row.version), now, said) for row in rows])
    return len(rows)


def resume_schedules(session: Session, org_id: str, actor: str, now: datetime) -> int:
    """How many are active again. One that is never due any more is not."""
    rows = _locked(session, org_id, ScheduleRow.is_suspended.is_(True))
    resumed = [row for row in rows if _resumed(session, row, actor, now)]
    enqueue(session, [schedule_event(org_id, row.id, "resumed", str(row.version), now) for row in resumed])
    return len(resumed)


def _resumed(session: Session, row: ScheduleRow, actor: str, now: datetime) -> bool:
    row.is_suspended = False
    if row.state != ScheduleState.PAUSED or not row.enabled:
        return False
    row.pause_reason = None
    fault: str | None = None
    try:
        planned = next_after(timing_of(row), now, row.last_scheduled_for)
    except InvalidInputError as error:
        planned, fault = None, str(error)
    if planned is not None:
        move_schedule(session, row, ScheduleState.ACTIVE, actor=actor, now=now, planned=planned)
    elif row.end_at is not None and fault is None:
        why = "Its last time is over."
        move_schedule(session, row, ScheduleState.COMPLETED, actor=actor, now=now, reason=why)
    else:
        move_schedule(
            session, row, ScheduleState.INVALID_CRON, actor=actor, now=now, reason=fault or "It is never due."
        )
    return planned is not None


def _locked(session: Session, org_id: str, chosen: ColumnElement[bool]) -> Sequence[ScheduleRow]:
    query = (
        select(ScheduleRow)
        .where(ScheduleRow.org_id == org_id, ScheduleRow.deleted_at.is_(None), chosen)
        .order_by(ScheduleRow.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    return session.scalars(query).all()
