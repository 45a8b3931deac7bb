"""Queries of jobs: create them with their first runs, and read them with runs and attempts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import TypeVar, cast

from sqlalchemy import Table, Text, case, func, insert, select
from sqlalchemy import cast as sqlalchemy_cast
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import JsonModel, as_document
from automation_pipeline.org_jobs.models.jobs import (
    FIRST_RUN_STATE,
    JOB_RUN,
    LONGEST_WAIT,
    Attempt,
    JobFilter,
    JobMove,
    JobType,
    OrgJob,
    OrgJobRun,
    QueueCounts,
    RetryPolicy,
    expires_at,
    stored_policy,
)
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.queries.queue import (
    IS_ACTIVE,
    IS_PENDING,
    IS_RUNNING,
    is_claimed,
    no_such_run,
)
from automation_pipeline.org_jobs.tables import AttemptRow, JobRunRow, OrganisationRow, OrgJobRow
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.statements import FRESH, among, where_given
from automation_pipeline.storage.types import Table as MetadataTable


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A job to create. Runs of one `line` start one at a time. `host_id` is that of its server. The
    job may start at `not_before`, and fails unless it starts within `longest_wait` of that."""

    org_id: str
    type: JobType
    payload: Mapping[str, object]
    retry: RetryPolicy
    created_by: str
    priority: int
    server_instance_id: int | None = None
    host_id: int | None = None
    schedule_id: str | None = None
    fire_id: int | None = None
    scheduled_for: datetime | None = None
    batch_id: int | None = None
    start_window: Mapping[str, object] | None = None
    line: str | None = None
    not_before: datetime | None = None
    longest_wait: timedelta = LONGEST_WAIT


def add_jobs(session: Session, jobs: Sequence[NewJob], now: datetime) -> list[int]:
    """Add the jobs and return their ids in the same order. Several jobs have different fires."""
    if not jobs:
        return []
    table = cast("Table", OrgJobRow.__table__)
    statement = insert(table).returning(table.c.schedule_fire_id, table.c.id)
    rows = session.execute(statement, [_job_columns(job, now) for job in jobs]).tuples()
    by_fire = dict(iter(rows))
    ids = [by_fire[job.fire_id] for job in jobs]
    runs = [_run_columns(job, job_id, now) for job, job_id in zip(jobs, ids, strict=True)]
    session.execute(insert(JobRunRow), runs)
    return ids


def _job_columns(job: NewJob, now: datetime) -> dict[str, object]:
    has_window = job.start_window is not None
    return {
        "org_id": job.org_id,
        "batch_id": job.batch_id,
        "server_instance_id": job.server_instance_id,
        "schedule_id": job.schedule_id,
        "schedule_fire_id": job.fire_id,
        "scheduled_for": job.scheduled_for,
        "type": job.type.name,
        "performer": job.type.performer,
        "limit_seconds": job.type.limit_seconds,
        "payload": dict(job.payload),
        "priority": job.priority,
        "retry_policy": as_document(job.retry),
        "start_window": job.start_window,
        "status": FIRST_RUN_STATE,
        "expires_at": expires_at(
            job.not_before or now, has_window=has_window, longest_wait=job.longest_wait
        ),
        "created_by": job.created_by,
        "created_at": now,
    }


def _run_columns(job: NewJob, job_id: int, now: datetime) -> dict[str, object]:
    return {
        "job_id": job_id,
        "org_id": job.org_id,
        "schedule_id": job.schedule_id,
        "host_id": job.host_id,
        "performer": job.type.performer,
        "is_mutation": job.type.is_mutation,
        "priority": job.priority,
        "line": job.line,
        "status": FIRST_RUN_STATE,
        "attempt_no": 1,
        "max_attempts": job.retry.attempts,
        "next_attempt_at": job.not_before,
        "created_by": job.created_by,
        "created_at": now,
    }


Shown = TypeVar("Shown", bound=JsonModel)


def get_job(session: Session, job_id: int, within: OrgScope) -> OrgJob:
    conditions = OrgJobRow.id == job_id, *where_given((OrgJobRow.org_id, within.org_id))
    rows = session.scalars(select(OrgJobRow).where(*conditions).execution_options(**FRESH)).all()
    if not rows:
        raise no_such_job(job_id)
    return _with_runs(session, rows)[0]


def list_jobs(
    session: Session, within: OrgScope, *, chosen: JobFilter, limit: int, offset: int
) -> list[OrgJob]:
    """Newest first."""
    wanted = where_given(
        (OrgJobRow.org_id, within.org_id),
        (OrgJobRow.org_id, chosen.org_id),
        (OrgJobRow.status, chosen.status),
        (OrgJobRow.type, chosen.type),
        (OrgJobRow.schedule_id, chosen.schedule_id),
        (OrgJobRow.server_instance_id, chosen.server_instance_id),
        (OrgJobRow.batch_id, chosen.batch_id),
    )
    fresh = (
        select(OrgJobRow)
        .where(*wanted)
        .order_by(OrgJobRow.id.desc())
        .limit(limit)
        .offset(offset)
        .execution_options(**FRESH)
    )
    return _with_runs(session, session.scalars(fresh).all())


def get_run(session: Session, run_id: int, within: OrgScope) -> OrgJobRun:
    conditions = JobRunRow.id == run_id, *where_given((JobRunRow.org_id, within.org_id))
    row = session.scalar(select(JobRunRow).where(*conditions).execution_options(**FRESH))
    if row is None:
        raise no_such_run(run_id)
    return shown(OrgJobRun, row, attempts=_attempts(session, [run_id]).get(run_id, ()))


def queues(session: Session, within: OrgScope, now: datetime) -> list[QueueCounts]:
    """The queue of every organisation, including empty ones."""
    is_retrying = JobRunRow.next_attempt_at > now
    state = case(
        (is_claimed(), "claimed"),
        (IS_RUNNING, "running"),
        (is_retrying, "retrying"),
        (IS_PENDING, "waiting"),
    )
    names = "waiting", "retrying", "claimed", "running"
    counts = [func.count().filter(state == name).label(name) for name in names]
    oldest = func.min(case((state == "waiting", JobRunRow.created_at)))
    query = (
        select(OrganisationRow, *counts, oldest.label("oldest"))
        .outerjoin(JobRunRow, (JobRunRow.org_id == OrganisationRow.id) & IS_ACTIVE)
        .where(*where_given((OrganisationRow.id, within.org_id)))
        .group_by(OrganisationRow.id)
        .order_by(OrganisationRow.id)
    )
    return [
        QueueCounts(
            org_id=org.id,
            name=f"jobs:{org.id}",
            max_running=org.max_running,
            waiting=waiting,
            retrying=retrying,
            claimed=claimed,
            running=running,
            oldest_waiting_at=oldest_at,
            suspended_at=org.suspended_at,
            maintenance_until=org.maintenance_until,
        )
        for org, waiting, retrying, claimed, running, oldest_at in session.execute(query).tuples()
    ]


def transitions_of(
    session: Session, job_id: int, within: OrgScope, limit: int, after_id: int = 0
) -> list[JobMove]:
    """The state changes of its runs, oldest first."""
    conditions = OrgJobRow.id == job_id, *where_given((OrgJobRow.org_id, within.org_id))
    if session.scalar(select(OrgJobRow.id).where(*conditions)) is None:
        raise no_such_job(job_id)
    runs = select(sqlalchemy_cast(JobRunRow.id, Text)).where(JobRunRow.job_id == job_id)
    of_runs = TransitionRow.machine == JOB_RUN.name, TransitionRow.entity_id.in_(runs)
    rows = session.scalars(
        select(TransitionRow)
        .where(*of_runs, TransitionRow.id > after_id)
        .order_by(TransitionRow.id)
        .limit(limit)
    )
    return [shown(JobMove, row, run_id=int(row.entity_id)) for row in rows]


def no_such_job(job_id: int) -> NotFoundError:
    return NotFoundError(f"Job {job_id} not found")


def _with_runs(session: Session, jobs: Sequence[OrgJobRow]) -> list[OrgJob]:
    if not jobs:
        return []
    of_jobs = among(session, JobRunRow.job_id, [job.id for job in jobs])
    runs = session.scalars(
        select(JobRunRow)
        .where(of_jobs)
        .order_by(JobRunRow.job_id, JobRunRow.id)
        .execution_options(**FRESH)
    ).all()
    attempts = _attempts(session, [run.id for run in runs])
    by_job = {
        job_id: tuple(shown(OrgJobRun, run, attempts=attempts.get(run.id, ())) for run in its)
        for job_id, its in groupby(runs, key=lambda run: run.job_id)
    }
    return [
        shown(
            OrgJob, job, runs=by_job.get(job.id, ()), retry_policy=stored_policy(job.retry_policy)
        )
        for job in jobs
    ]


def _attempts(session: Session, run_ids: Iterable[int]) -> dict[int, tuple[Attempt, ...]]:
    of_runs = among(session, AttemptRow.run_id, run_ids)
    rows = session.scalars(
        select(AttemptRow)
        .where(of_runs)
        .order_by(AttemptRow.run_id, AttemptRow.attempt_no)
        .execution_options(**FRESH)
    )
    return {
        run_id: tuple(shown(Attempt, row) for row in its)
        for run_id, its in groupby(rows, key=lambda row: row.run_id)
    }


def shown(model: type[Shown], row: MetadataTable, **given: object) -> Shown:
    """The row as a model; `given` are the fields that are not columns."""
    columns = {name: getattr(row, name) for name in model.model_fields if name not in given}
    return model.model_validate(columns | given)
