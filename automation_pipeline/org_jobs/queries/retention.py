"""Deletes what is older than it is kept, in small batches."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from sqlalchemy import ColumnElement, Delete, delete, exists, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from automation_pipeline.org_jobs.models.states import (
    ENDED_RUN_STATES,
    JOB_RUN,
    SCHEDULE,
    BatchState,
)
from automation_pipeline.org_jobs.tables import (
    AuditLogRow,
    BatchRow,
    FireRow,
    JobRunRow,
    OrgAlertRow,
    OrgJobRow,
    OrgScheduleRow,
)
from automation_pipeline.storage.retention import Kind
from automation_pipeline.storage.statements import among
from automation_pipeline.storage.transitions import TransitionRow

Key = TypeVar("Key", str, int)


def purge_jobs(session: Session, before: datetime, limit: int) -> int:
    """Those that ended before, with their runs, the attempts of those and what is logged of
    them."""
    is_old = _old_jobs(before)
    old = session.scalars(
        select(OrgJobRow.id).where(*is_old).order_by(OrgJobRow.id).limit(limit)
    ).all()
    # Runs are locked before their jobs, as whoever has a job done again does it: nobody waits
    # crosswise.
    runs = (
        select(JobRunRow.id, JobRunRow.job_id)
        .where(among(session, JobRunRow.job_id, old))
        .order_by(JobRunRow.id)
    )
    free = session.execute(runs.with_for_update(skip_locked=True)).tuples().all()
    busy = {job_id for _, job_id in set(session.execute(runs).tuples()) - set(free)}
    job_ids = _held(
        session, OrgJobRow.id, (*is_old, among(session, OrgJobRow.id, set(old) - busy)), limit
    )
    _forget_moves(session, JOB_RUN.name, [id_ for id_, job_id in free if job_id in set(job_ids)])
    return _taken(session, delete(OrgJobRow), OrgJobRow.id, job_ids)


def purge_fires(session: Session, before: datetime, limit: int) -> int:
    """Those whose jobs are gone, or that had none."""
    return _taken(
        session, delete(FireRow), FireRow.id, _held(session, FireRow.id, _old_fires(before), limit)
    )


def purge_batches(session: Session, before: datetime, limit: int) -> int:
    """Those that are over, and of which nothing is left."""
    return _taken(
        session,
        delete(BatchRow),
        BatchRow.id,
        _held(session, BatchRow.id, _old_batches(before), limit),
    )


def purge_schedules(session: Session, before: datetime, limit: int) -> int:
    """Those that were deleted, and of which nothing is left."""
    schedule_ids = _held(session, OrgScheduleRow.id, _old_schedules(before), limit)
    _forget_moves(session, SCHEDULE.name, schedule_ids)
    return _taken(session, delete(OrgScheduleRow), OrgScheduleRow.id, schedule_ids)


def count_old(session: Session, before: datetime) -> dict[str, int]:
    """How many would go now. What refers to a job that goes, or to its schedule, follows after
    it."""
    old = (
        (OrgJobRow, _old_jobs(before)),
        (FireRow, _old_fires(before)),
        (BatchRow, _old_batches(before)),
        (OrgScheduleRow, _old_schedules(before)),
    )
    counts = {
        table: select(func.count()).select_from(table).where(*chosen) for table, chosen in old
    }
    return {table.__tablename__: session.scalar(query) or 0 for table, query in counts.items()}


def _old_jobs(before: datetime) -> Sequence[ColumnElement[bool]]:
    """Not that with the newest number, nor that of the newest run: SQLite would give their numbers
    out again, and requests under their keys were filed already."""
    newest = select(func.max(OrgJobRow.id)).scalar_subquery()
    of_newest_run = (
        select(JobRunRow.job_id).order_by(JobRunRow.id.desc()).limit(1).scalar_subquery()
    )
    is_numbered = OrgJobRow.id < newest, OrgJobRow.id != func.coalesce(of_newest_run, newest)
    return OrgJobRow.finished_at < before, OrgJobRow.status.in_(ENDED_RUN_STATES), *is_numbered


def _old_fires(before: datetime) -> Sequence[ColumnElement[bool]]:
    return FireRow.fired_at < before, ~exists().where(OrgJobRow.schedule_fire_id == FireRow.id)


def _old_batches(before: datetime) -> Sequence[ColumnElement[bool]]:
    has_fire = exists().where(FireRow.batch_id == BatchRow.id)
    has_job = exists().where(OrgJobRow.batch_id == BatchRow.id)
    return BatchRow.status != BatchState.RUNNING, BatchRow.finished_at < before, ~has_fire, ~has_job


def _old_schedules(before: datetime) -> Sequence[ColumnElement[bool]]:
    left = [
        exists().where(table.schedule_id == OrgScheduleRow.id)
        for table in (FireRow, OrgJobRow, BatchRow)
    ]
    return OrgScheduleRow.deleted_at < before, *(~one for one in left)


AUDIT_LOG = Kind("org_audit_log", AuditLogRow, lambda before: (AuditLogRow.at < before,))
ALERTS = Kind("org_alerts", OrgAlertRow, lambda before: (OrgAlertRow.raised_at < before,))


def _held(
    session: Session,
    key: InstrumentedAttribute[Key],
    chosen: Sequence[ColumnElement[bool]],
    limit: int,
) -> Sequence[Key]:
    query = select(key).where(*chosen).order_by(key).limit(limit)
    return session.scalars(query.with_for_update(skip_locked=True)).all()


def _taken(
    session: Session, deleting: Delete, key: InstrumentedAttribute[Key], keys: Sequence[Key]
) -> int:
    if keys:
        session.execute(
            deleting.where(among(session, key, keys)).execution_options(synchronize_session=False)
        )
    return len(keys)


def _forget_moves(session: Session, machine: str, entity_ids: Sequence[object]) -> None:
    its = (
        TransitionRow.machine == machine,
        among(session, TransitionRow.entity_id, [str(one) for one in entity_ids]),
    )
    if entity_ids:
        session.execute(
            delete(TransitionRow).where(*its).execution_options(synchronize_session=False)
        )
