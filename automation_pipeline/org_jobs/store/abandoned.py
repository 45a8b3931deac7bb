"""Runs that nobody speaks for any more: found, held against a late word, and judged."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, exists, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.endings import AttemptEnd
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.reaping import Standing, reaped
from automation_pipeline.org_jobs.domain.states import RunState
from automation_pipeline.org_jobs.store.endings import lock_schedules_of
from automation_pipeline.org_jobs.store.readiness import is_free, is_of_open
from automation_pipeline.org_jobs.tables import JobRow, JobRunRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.instants import database_now, database_time

Run = JobRunRow

# How long each may be silent.
Patience = Mapping[Performer, float]


def abandoned_runs(session: Session, patience: Patience, now: datetime, limit: int) -> dict[int, AttemptEnd]:
    """How they end. Whoever was heard of at the last moment keeps what it has: they are looked at again once they are
    held."""
    found = sorted({*_silent_or_late(session, now, limit), *_never_begun(session, now, limit)})[:limit]
    if not found:
        return {}
    lock_schedules_of(session, found)
    query = (
        select(Run, JobRow.expires_at)
        .join(JobRow, JobRow.id == Run.job_id)
        .where(among(session, Run.id, found))
        .order_by(Run.id)
        .with_for_update(of=Run)
        .execution_options(populate_existing=True)
    )
    rows = session.execute(query).tuples().all()
    present = database_time(session)
    ends = {run.id: reaped(_standing(run, until, patience, present), now) for run, until in rows}
    return {run_id: end for run_id, end in ends.items() if end is not None}


def free_unbegun(session: Session, limit: int) -> Sequence[int]:
    """Runs that were taken and never begun: the attempt is still to be made, by whoever takes it next."""
    is_lost = Run.status == RunState.PENDING, Run.lease_until <= database_now()
    held = select(Run.id).where(*is_lost).order_by(Run.id).limit(limit).with_for_update(skip_locked=True)
    run_ids = session.scalars(held).all()
    if run_ids:
        session.execute(
            update(Run)
            .where(among(session, Run.id, run_ids), *is_lost)
            .values(lease_owner=None, lease_until=None, requested_at=None)
            .execution_options(synchronize_session=False)
        )
    return run_ids


def _silent_or_late(session: Session, now: datetime, limit: int) -> Sequence[int]:
    is_late = and_(Run.deadline_at <= now, Run.following.is_(None))
    running = Run.status == RunState.RUNNING, or_(Run.lease_until <= database_now(), is_late)
    return _first(session, running, limit)


def _never_begun(session: Session, now: datetime, limit: int) -> Sequence[int]:
    is_overdue = exists().where(JobRow.id == Run.job_id, JobRow.expires_at <= now)
    return _first(session, (Run.status == RunState.PENDING, is_free(), is_overdue, is_of_open(now)), limit)


def _first(session: Session, conditions: Sequence[ColumnElement[bool]], limit: int) -> Sequence[int]:
    return session.scalars(select(Run.id).where(*conditions).order_by(Run.id).limit(limit)).all()


def _standing(run: JobRunRow, expires_at: datetime | None, patience: Patience, present: datetime) -> Standing:
    until = run.lease_until
    overdue = None if until is None or until > present else (present - until).total_seconds()
    return Standing(
        status=RunState(run.status),
        performer=Performer(run.performer),
        is_cancel_wanted=run.cancel_requested_at is not None,
        cancel_reason=run.cancel_reason,
        silent_seconds=None if overdue is None else overdue + patience[Performer(run.performer)],
        is_held=until is not None and overdue is None,
        is_followed=run.following is not None,
        started_at=run.started_at,
        deadline_at=run.deadline_at,
        expires_at=expires_at,
    )
