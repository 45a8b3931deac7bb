"""Schedules that were paused until a time which is over."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.domain.events import schedule_event
from automation_pipeline.org_jobs.domain.schedule_changes import Standing, next_after
from automation_pipeline.org_jobs.domain.states import ScheduleState
from automation_pipeline.org_jobs.domain.timing import Planned
from automation_pipeline.org_jobs.store.outcomes import SCHEDULER
from automation_pipeline.org_jobs.store.schedule_writes import forget_pause, log, settle
from automation_pipeline.org_jobs.store.timings import timing_of
from automation_pipeline.org_jobs.tables import OrganisationRow, ScheduleRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.outbox import enqueue


def hold_ended_pauses(session: Session, now: datetime, limit: int) -> Sequence[ScheduleRow]:
    """Locked, with their organisations before them; those of organisations that are suspended wait. One that another
    holds is left to it."""
    its = (
        ScheduleRow.paused_until <= now,
        ScheduleRow.state == ScheduleState.PAUSED,
        ScheduleRow.deleted_at.is_(None),
    )
    of_ended = select(ScheduleRow.org_id).where(*its)
    free = (
        select(OrganisationRow.id)
        .where(OrganisationRow.id.in_(of_ended), OrganisationRow.suspended_at.is_(None))
        .order_by(OrganisationRow.id)
        .with_for_update(read=True, skip_locked=True)
    )
    org_ids = session.scalars(free).all()
    if not org_ids:
        return []
    chosen = select(ScheduleRow).where(*its, among(session, ScheduleRow.org_id, org_ids)).order_by(ScheduleRow.id)
    held = chosen.limit(limit).with_for_update(skip_locked=True).execution_options(populate_existing=True)
    return session.scalars(held).all()


def resume_held(session: Session, rows: Sequence[ScheduleRow], now: datetime) -> list[str]:
    """Those that go on: one may have come to its end meanwhile, or mean nothing any more."""
    resumed = [row for row in rows if _resume(session, row, now)]
    enqueue(session, [schedule_event(row.org_id, row.id, "resumed", str(row.version), now) for row in resumed])
    return [row.id for row in resumed]


def _resume(session: Session, row: ScheduleRow, now: datetime) -> bool:
    planned, fault = _planned(row, now)
    forget_pause(row)
    row.enabled = True
    if planned is not None:
        standing = Standing(ScheduleState.ACTIVE, planned)
    else:
        is_over = fault is None and row.end_at is not None
        standing = Standing(ScheduleState.COMPLETED if is_over else ScheduleState.INVALID_CRON)
    settle(session, row, standing, actor=SCHEDULER, now=now, reason=fault)
    log(session, row, "resume", actor=SCHEDULER, now=now, after={"state": row.state}, reason=fault)
    return planned is not None


def _planned(row: ScheduleRow, now: datetime) -> tuple[Planned | None, str | None]:
    try:
        return next_after(timing_of(row), now, row.last_scheduled_for), None
    except InvalidInputError as error:
        return None, str(error)
