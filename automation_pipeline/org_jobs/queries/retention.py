"""Retention of jobs, schedules and their history."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Text, cast, exists, or_, select

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
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.retention import Kind


def _old_jobs(before: datetime) -> Sequence[ColumnElement[bool]]:
    """Ended jobs, with their runs and attempts. The newest run stays, because keys of worker
    requests contain the run's id."""
    newest_run = select(JobRunRow.job_id).order_by(JobRunRow.id.desc()).limit(1).scalar_subquery()
    has_ended = OrgJobRow.status.in_(ENDED_RUN_STATES)
    return OrgJobRow.finished_at < before, has_ended, OrgJobRow.id != newest_run


def _old_fires(before: datetime) -> Sequence[ColumnElement[bool]]:
    return FireRow.fired_at < before, ~exists().where(OrgJobRow.schedule_fire_id == FireRow.id)


def _old_batches(before: datetime) -> Sequence[ColumnElement[bool]]:
    has_fire = exists().where(FireRow.batch_id == BatchRow.id)
    has_job = exists().where(OrgJobRow.batch_id == BatchRow.id)
    has_ended = BatchRow.status != BatchState.RUNNING
    return has_ended, BatchRow.finished_at < before, ~has_fire, ~has_job


def _old_schedules(before: datetime) -> Sequence[ColumnElement[bool]]:
    """Deleted schedules without history."""
    history = (FireRow, OrgJobRow, BatchRow)
    left = (exists().where(table.schedule_id == OrgScheduleRow.id) for table in history)
    return OrgScheduleRow.deleted_at < before, *(~one for one in left)


def _old_moves(before: datetime) -> Sequence[ColumnElement[bool]]:
    """State changes of deleted runs and schedules."""
    entity, machine = TransitionRow.entity_id, TransitionRow.machine
    has_run = exists().where(cast(JobRunRow.id, Text) == entity)
    has_schedule = exists().where(OrgScheduleRow.id == entity)
    is_left = or_((machine == JOB_RUN.name) & ~has_run, (machine == SCHEDULE.name) & ~has_schedule)
    return TransitionRow.at < before, is_left


# In this order: the history of a schedule is deleted before the schedule.
JOBS = (
    Kind("org_jobs", OrgJobRow, _old_jobs),
    Kind("org_schedule_fires", FireRow, _old_fires),
    Kind("org_job_batches", BatchRow, _old_batches),
    Kind("org_schedules", OrgScheduleRow, _old_schedules),
    Kind("state_transitions, org_jobs", TransitionRow, _old_moves),
    Kind("org_alerts", OrgAlertRow, lambda before: (OrgAlertRow.raised_at < before,)),
)
AUDIT_LOG = Kind("org_audit_log", AuditLogRow, lambda before: (AuditLogRow.at < before,))
