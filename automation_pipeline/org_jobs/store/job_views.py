"""Jobs with their runs and attempts, as they are shown: a constant number of queries, however many they are."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import TypeVar

from sqlalchemy import ColumnElement, Text, and_, case, cast, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.org_jobs.domain.keys import queue_name
from automation_pipeline.org_jobs.domain.org_job import Attempt, JobFilter, JobMove, OrgJob, OrgJobRun, QueueStanding
from automation_pipeline.org_jobs.domain.retry_policy import stored_policy
from automation_pipeline.org_jobs.domain.states import ACTIVE_RUN_STATES, JOB_RUN, RunState
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.tables import AttemptRow, JobRow, JobRunRow, OrganisationRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.instants import database_now
from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.transitions import TransitionRow

Shown = TypeVar("Shown", bound=JsonModel)

_FRESH = {"populate_existing": True}


def get_job(session: Session, job_id: int, within: Within) -> OrgJob:
    query = select(JobRow).where(JobRow.id == job_id, *_within(JobRow.org_id, within)).execution_options(**_FRESH)
    jobs = _with_runs(session, session.scalars(query).all(), within)
    if not jobs:
        raise no_such_job(job_id)
    return jobs[0]


def list_jobs(session: Session, within: Within, *, chosen: JobFilter, limit: int, offset: int) -> list[OrgJob]:
    """Newest first."""
    query = select(JobRow).where(*_conditions(within, chosen)).order_by(JobRow.id.desc()).limit(limit).offset(offset)
    return _with_runs(session, session.scalars(query.execution_options(**_FRESH)).all(), within)


def get_run(session: Session, run_id: int, within: Within) -> OrgJobRun:
    query = select(JobRunRow).where(JobRunRow.id == run_id, *_within(JobRunRow.org_id, within))
    row = session.scalar(query.execution_options(**_FRESH))
    if row is None:
        raise NotFoundError(f"Job run {run_id} does not exist.")
    return _run_value(row, _attempts(session, [run_id], within).get(run_id, ()))


def queues(session: Session, within: Within, now: datetime) -> list[QueueStanding]:
    """Of every organisation, also of those that have nothing to do."""
    is_claimed = and_(JobRunRow.status == RunState.PENDING, JobRunRow.lease_until > database_now())
    is_put_off = and_(JobRunRow.status == RunState.PENDING, ~_or_false(is_claimed), JobRunRow.next_attempt_at > now)
    is_waiting = and_(JobRunRow.status == RunState.PENDING, ~_or_false(is_claimed), ~_or_false(is_put_off))
    conditions = (is_waiting, is_put_off, is_claimed, JobRunRow.status == RunState.RUNNING)
    counts = [func.coalesce(func.sum(case((condition, 1), else_=0)), 0) for condition in conditions]
    query = (
        select(OrganisationRow, *counts, func.min(case((is_waiting, JobRunRow.created_at))))
        .outerjoin(
            JobRunRow,
            and_(JobRunRow.org_id == OrganisationRow.id, JobRunRow.status.in_(ACTIVE_RUN_STATES)),
        )
        .where(*_within(OrganisationRow.id, within))
        .group_by(OrganisationRow.id)
        .order_by(OrganisationRow.id)
    )
    return [_queue(row, *rest) for row, *rest in session.execute(query).tuples()]


def transitions_of(session: Session, job_id: int, within: Within, limit: int, after_id: int = 0) -> list[JobMove]:
    """The moves of its runs, in the order in which they were made."""
    is_there = select(JobRow.id).where(JobRow.id == job_id, *_within(JobRow.org_id, within))
    if session.scalar(is_there) is None:
        raise no_such_job(job_id)
    runs = select(cast(JobRunRow.id, Text)).where(JobRunRow.job_id == job_id)
    of_runs = TransitionRow.machine == JOB_RUN.name, TransitionRow.entity_id.in_(runs), TransitionRow.id > after_id
    rows = session.scalars(select(TransitionRow).where(*of_runs).order_by(TransitionRow.id).limit(limit))
    return [_value(JobMove, row, run_id=int(row.entity_id)) for row in rows]


def no_such_job(job_id: int) -> NotFoundError:
    return NotFoundError(f"Job {job_id} does not exist.")


def _with_runs(session: Session, jobs: Sequence[JobRow], within: Within) -> list[OrgJob]:
    if not jobs:
        return []
    of_jobs = among(session, JobRunRow.job_id, [job.id for job in jobs]), *_within(JobRunRow.org_id, within)
    query = select(JobRunRow).where(*of_jobs).order_by(JobRunRow.job_id, JobRunRow.id)
    runs = session.scalars(query.execution_options(**_FRESH)).all()
    attempts = _attempts(session, [run.id for run in runs], within)
    by_job = {
        job_id: tuple(_run_value(run, attempts.get(run.id, ())) for run in its)
        for job_id, its in groupby(runs, key=lambda run: run.job_id)
    }
    return [
        _value(OrgJob, job, runs=by_job.get(job.id, ()), retry_policy=stored_policy(job.retry_policy)) for job in jobs
    ]


def _attempts(session: Session, run_ids: Iterable[int], within: Within) -> dict[int, tuple[Attempt, ...]]:
    of_runs = among(session, AttemptRow.run_id, run_ids), *_within(AttemptRow.org_id, within)
    query = select(AttemptRow).where(*of_runs).order_by(AttemptRow.run_id, AttemptRow.attempt_no)
    rows = session.scalars(query.execution_options(**_FRESH))
    return {
        run_id: tuple(_value(Attempt, row) for row in its) for run_id, its in groupby(rows, key=lambda row: row.run_id)
    }


def _run_value(row: JobRunRow, attempts: Sequence[Attempt]) -> OrgJobRun:
    return _value(OrgJobRun, row, attempts=tuple(attempts))


def _value(model: type[Shown], row: Table, **given: object) -> Shown:
    of_row = {name: getattr(row, name) for name in model.model_fields if name not in given}
    return model.model_validate(of_row | given)


def _queue(
    row: OrganisationRow, waiting: int, put_off: int, claimed: int, running: int, oldest: datetime | None
) -> QueueStanding:
    return QueueStanding(
        org_id=row.id,
        name=queue_name(row.id),
        max_running=row.max_running,
        waiting=waiting,
        retrying=put_off,
        claimed=claimed,
        running=running,
        oldest_waiting_at=oldest,
        suspended_at=row.suspended_at,
        maintenance_until=row.maintenance_until,
    )


def _or_false(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """What compares with NULL does not hold, and neither does its contrary, unless it is said so."""
    return func.coalesce(condition, False)


def _conditions(within: Within, chosen: JobFilter) -> list[ColumnElement[bool]]:
    wanted = (
        (JobRow.org_id, chosen.org_id),
        (JobRow.status, chosen.status),
        (JobRow.type, chosen.type),
        (JobRow.schedule_id, chosen.schedule_id),
        (JobRow.server_instance_id, chosen.server_instance_id),
        (JobRow.batch_id, chosen.batch_id),
    )
    return _within(JobRow.org_id, within) + [column == value for column, value in wanted if value is not None]


def _within(org_id: InstrumentedAttribute[str], within: Within) -> list[ColumnElement[bool]]:
    return [] if within.org_id is None else [org_id == within.org_id]
