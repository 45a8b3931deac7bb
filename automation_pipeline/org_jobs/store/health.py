"""How schedules, jobs and hosts of all organisations fare: what alerts are made of, in a constant number of queries."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.alerts import HEARTBEAT_MISSED_AFTER, LOOK_BACK
from automation_pipeline.org_jobs.domain.health import (
    FailedJobs,
    FailingSchedule,
    Health,
    SpoiltBatch,
    UnreadableSchedule,
)
from automation_pipeline.org_jobs.domain.states import BatchState, FireOutcome, RunState, ScheduleState
from automation_pipeline.org_jobs.store.quiet_hosts import quiet_hosts
from automation_pipeline.org_jobs.store.watched import is_active, watched_schedules
from automation_pipeline.org_jobs.tables import BatchRow, FireRow, JobRow, JobRunRow, ScheduleRow
from automation_pipeline.storage.bulk import among

LONGEST_ERROR = 300


def health_of_all(session: Session, now: datetime) -> Health:
    since = now - LOOK_BACK
    jobs = _failed_jobs(session, since)
    return Health(
        oldest_due_at=oldest_due_at(session, now),
        failed_jobs=jobs,
        failing=_failing(session, jobs, since),
        unreadable=_unreadable(session),
        watched=watched_schedules(session, now),
        quiet_hosts=quiet_hosts(session, now, HEARTBEAT_MISSED_AFTER),
        batches=_spoilt(session, since),
    )


def oldest_due_at(session: Session, now: datetime) -> datetime | None:
    """Of the schedules that are due by now, when the first of them was."""
    return session.scalar(select(func.min(ScheduleRow.next_run_at)).where(*is_active(), ScheduleRow.next_run_at <= now))


def _failed_jobs(session: Session, since: datetime) -> list[FailedJobs]:
    of = case((JobRow.schedule_id.is_(None), JobRow.type))
    query = (
        select(JobRow.org_id, JobRow.schedule_id, func.max(JobRow.type), func.count(), func.max(JobRow.id))
        .add_columns(func.max(JobRow.finished_at))
        .where(JobRow.finished_at > since, JobRow.status == RunState.FAILED)
        .group_by(JobRow.org_id, JobRow.schedule_id, of)
    )
    found = [
        FailedJobs(org_id=org, schedule_id=schedule, type=type_, count=count, last_id=last, last_at=at)
        for org, schedule, type_, count, last, at in session.execute(query).tuples()
        if at is not None
    ]
    errors = _errors(session, [one.last_id for one in found])
    return [replace(one, last_error=errors.get(one.last_id)) for one in found]


def _errors(session: Session, job_ids: Collection[int]) -> Mapping[int, str]:
    """Of the newest run of each that failed."""
    query = (
        select(JobRunRow.job_id, JobRunRow.error)
        .where(among(session, JobRunRow.job_id, job_ids), JobRunRow.error.is_not(None))
        .order_by(JobRunRow.id)
    )
    return {job_id: (error or "")[:LONGEST_ERROR] for job_id, error in session.execute(query).tuples()}


def _failing(session: Session, jobs: Sequence[FailedJobs], since: datetime) -> list[FailingSchedule]:
    query = (
        select(FireRow.schedule_id, func.max(FireRow.fired_at))
        .where(FireRow.fired_at > since, FireRow.outcome == FireOutcome.FAILED)
        .group_by(FireRow.schedule_id)
    )
    last_at: dict[str, datetime] = dict(session.execute(query).tuples().all())
    for job in jobs:
        if job.schedule_id is not None:
            last_at[job.schedule_id] = max(job.last_at, last_at.get(job.schedule_id, job.last_at))
    is_too_many = ScheduleRow.auto_pause_after.between(1, ScheduleRow.consecutive_failures)
    is_paused = case((is_too_many, ScheduleRow.state == ScheduleState.PAUSED), else_=False)
    schedules = select(
        ScheduleRow.org_id, ScheduleRow.id, ScheduleRow.name, ScheduleRow.consecutive_failures, is_paused
    )
    chosen = schedules.where(among(session, ScheduleRow.id, last_at), ScheduleRow.deleted_at.is_(None))
    return [
        FailingSchedule(
            org_id=org, id=id_, name=name, in_a_row=in_a_row, is_paused_for_it=bool(paused), last_at=last_at[id_]
        )
        for org, id_, name, in_a_row, paused in session.execute(chosen.order_by(ScheduleRow.id)).tuples()
    ]


def _unreadable(session: Session) -> list[UnreadableSchedule]:
    columns = ScheduleRow.org_id, ScheduleRow.id, ScheduleRow.name, ScheduleRow.cron_expression, ScheduleRow.updated_at
    query = select(*columns).where(ScheduleRow.state == ScheduleState.INVALID_CRON, ScheduleRow.deleted_at.is_(None))
    return [
        UnreadableSchedule(org_id=org, id=id_, name=name, cron_expression=cron, since=since)
        for org, id_, name, cron, since in session.execute(query.order_by(ScheduleRow.id)).tuples()
    ]


def _spoilt(session: Session, since: datetime) -> list[SpoiltBatch]:
    query = select(BatchRow.org_id, BatchRow.id, BatchRow.schedule_id, BatchRow.finished_at).where(
        BatchRow.status == BatchState.COMPLETED_WITH_FAILURES, BatchRow.finished_at > since
    )
    return [
        SpoiltBatch(org_id=org, id=id_, schedule_id=schedule, finished_at=at)
        for org, id_, schedule, at in session.execute(query.order_by(BatchRow.id)).tuples()
        if at is not None
    ]
