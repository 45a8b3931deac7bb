"""Queries about jobs: create them with their first runs, and read them with runs and attempts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import TypeVar, cast

from sqlalchemy import ColumnElement, Table, Text, and_, case, func, insert, select
from sqlalchemy import cast as sqlalchemy_cast
from sqlalchemy.orm import InstrumentedAttribute, Session

from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import JsonModel, as_document, parse
from automation_pipeline.core.scheduling.execution_window import ExecutionWindow
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.org_jobs.models.job_types import job_type
from automation_pipeline.org_jobs.models.jobs import (
    Attempt,
    JobFilter,
    JobMove,
    JobType,
    OrgJob,
    OrgJobRun,
    QueueCounts,
    RetryPolicy,
    StartWindow,
    queue_name,
    stored_policy,
)
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.models.states import (
    ACTIVE_RUN_STATES,
    FIRST_RUN_STATE,
    JOB_RUN,
    OrgJobsRunState,
    OverlapPolicy,
)
from automation_pipeline.org_jobs.models.timing import Timing
from automation_pipeline.org_jobs.rules.attempts import WAITS, expires_at
from automation_pipeline.org_jobs.tables import (
    AttemptRow,
    JobRunRow,
    OrganisationRow,
    OrgJobRow,
    OrgScheduleRow,
    ServerRow,
)
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.statements import among
from automation_pipeline.storage.transitions import TransitionRow
from automation_pipeline.storage.types import Table as MetadataTable


def stored_window(timing: Timing) -> dict[str, object] | None:
    if timing.window is None:
        return None
    start, end = (f"{at:%H:%M}" for at in (timing.window.start, timing.window.end))
    return {"start": start, "end": end, "timezone": timing.zone.key}


def window_of(document: Mapping[str, object] | None) -> StartWindow | None:
    """None: whenever; so too where its zone is gone from the zone database."""
    if document is None:
        return None
    try:
        window = ExecutionWindow.parse(str(document["start"]), str(document["end"]))
        return window and StartWindow(window, zone(str(document["timezone"])))
    except InvalidInputError:
        return None


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """`line`: jobs of one line are done one after another. `host_id`: that of its server, where it
    has one. Unless it has begun within `waits` of when it may, it fails; it does not begin before
    `not_before`."""

    org_id: str
    type: JobType
    payload: Mapping[str, object]
    retry: RetryPolicy
    created_by: str
    priority: int = 5
    server_instance_id: int | None = None
    host_id: int | None = None
    schedule_id: str | None = None
    fire_id: int | None = None
    scheduled_for: datetime | None = None
    batch_id: int | None = None
    start_window: Mapping[str, object] | None = None
    line: str | None = None
    not_before: datetime | None = None
    waits: timedelta = WAITS


def add_jobs(session: Session, jobs: Sequence[NewJob], now: datetime) -> list[int]:
    """Their ids, in the same order. They may begin at once. Of several, each is of a fire of its
    own."""
    if not jobs:
        return []
    table = cast("Table", OrgJobRow.__table__)
    statement = insert(table).returning(table.c.schedule_fire_id, table.c.id)
    by_fire = dict(iter(session.execute(statement, [_job(job, now) for job in jobs]).tuples()))
    ids = [by_fire[job.fire_id] for job in jobs]
    session.execute(
        insert(JobRunRow), [_run(job, id_, now) for id_, job in zip(ids, jobs, strict=True)]
    )
    return ids


def run_columns(
    job: OrgJobRow, created_by: str, now: datetime, *, like: JobRunRow
) -> dict[str, object]:
    """Of another run of a job, beside one that has ended."""
    return {
        "job_id": job.id,
        "org_id": job.org_id,
        "schedule_id": job.schedule_id,
        "host_id": like.host_id,
        "performer": job.performer,
        "is_mutation": like.is_mutation,
        "priority": job.priority,
        "line": like.line,
        "status": FIRST_RUN_STATE,
        "attempt_no": 1,
        "max_attempts": like.max_attempts,
        "created_by": created_by,
        "created_at": now,
    }


def _job(job: NewJob, now: datetime) -> dict[str, object]:
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
            job.not_before or now, has_window=job.start_window is not None, waits=job.waits
        ),
        "created_by": job.created_by,
        "created_at": now,
    }


def _run(job: NewJob, job_id: int, now: datetime) -> dict[str, object]:
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


def job_of(
    row: OrgScheduleRow,
    timing: Timing,
    scheduled_for: datetime,
    host_id: int | None,
    own_types: Mapping[str, JobType],
) -> NewJob:
    """InvalidInputError: there is no such type of job any more, or no such retry policy. `host_id`:
    see `host_of`; `own_types`: those of the organisation."""
    return NewJob(
        org_id=row.org_id,
        type=job_type(row.job_type, own_types),
        payload=row.payload,
        retry=parse(
            RetryPolicy, row.retry_policy or {}, "Its retry policy cannot be used any more"
        ),
        created_by=f"schedule:{row.id}",
        priority=row.priority,
        server_instance_id=row.server_instance_id,
        host_id=host_id,
        schedule_id=row.id,
        scheduled_for=scheduled_for,
        start_window=stored_window(timing),
        line=row.id if OverlapPolicy(row.overlap_policy).is_serial else None,
    )


def host_of(session: Session, row: OrgScheduleRow) -> int | None:
    """That of its server, where it has both."""
    of_server = ServerRow.id == row.server_instance_id, ServerRow.org_id == row.org_id
    return session.scalar(select(ServerRow.host_id).where(*of_server))


Shown = TypeVar("Shown", bound=JsonModel)

_FRESH = {"populate_existing": True}


def get_job(session: Session, job_id: int, within: OrgScope) -> OrgJob:
    query = (
        select(OrgJobRow)
        .where(OrgJobRow.id == job_id, *_within(OrgJobRow.org_id, within))
        .execution_options(**_FRESH)
    )
    jobs = _with_runs(session, session.scalars(query).all(), within)
    if not jobs:
        raise no_such_job(job_id)
    return jobs[0]


def list_jobs(
    session: Session, within: OrgScope, *, chosen: JobFilter, limit: int, offset: int
) -> list[OrgJob]:
    """Newest first."""
    query = (
        select(OrgJobRow)
        .where(*_conditions(within, chosen))
        .order_by(OrgJobRow.id.desc())
        .limit(limit)
        .offset(offset)
    )
    return _with_runs(session, session.scalars(query.execution_options(**_FRESH)).all(), within)


def get_run(session: Session, run_id: int, within: OrgScope) -> OrgJobRun:
    query = select(JobRunRow).where(JobRunRow.id == run_id, *_within(JobRunRow.org_id, within))
    row = session.scalar(query.execution_options(**_FRESH))
    if row is None:
        raise NotFoundError(f"Job run {run_id} not found")
    return _run_value(row, _attempts(session, [run_id], within).get(run_id, ()))


def queues(session: Session, within: OrgScope, now: datetime) -> list[QueueCounts]:
    """Of every organisation, also of those that have nothing to do."""
    is_claimed = and_(
        JobRunRow.status == OrgJobsRunState.PENDING, JobRunRow.lease_until > database_now()
    )
    is_put_off = and_(
        JobRunRow.status == OrgJobsRunState.PENDING,
        ~_or_false(is_claimed),
        JobRunRow.next_attempt_at > now,
    )
    is_waiting = and_(
        JobRunRow.status == OrgJobsRunState.PENDING, ~_or_false(is_claimed), ~_or_false(is_put_off)
    )
    conditions = (is_waiting, is_put_off, is_claimed, JobRunRow.status == OrgJobsRunState.RUNNING)
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


def transitions_of(
    session: Session, job_id: int, within: OrgScope, limit: int, after_id: int = 0
) -> list[JobMove]:
    """The moves of its runs, in the order in which they were made."""
    is_there = select(OrgJobRow.id).where(
        OrgJobRow.id == job_id, *_within(OrgJobRow.org_id, within)
    )
    if session.scalar(is_there) is None:
        raise no_such_job(job_id)
    runs = select(sqlalchemy_cast(JobRunRow.id, Text)).where(JobRunRow.job_id == job_id)
    of_runs = (
        TransitionRow.machine == JOB_RUN.name,
        TransitionRow.entity_id.in_(runs),
        TransitionRow.id > after_id,
    )
    rows = session.scalars(
        select(TransitionRow).where(*of_runs).order_by(TransitionRow.id).limit(limit)
    )
    return [_value(JobMove, row, run_id=int(row.entity_id)) for row in rows]


def no_such_job(job_id: int) -> NotFoundError:
    return NotFoundError(f"Job {job_id} not found")


def _with_runs(session: Session, jobs: Sequence[OrgJobRow], within: OrgScope) -> list[OrgJob]:
    if not jobs:
        return []
    of_jobs = (
        among(session, JobRunRow.job_id, [job.id for job in jobs]),
        *_within(JobRunRow.org_id, within),
    )
    query = select(JobRunRow).where(*of_jobs).order_by(JobRunRow.job_id, JobRunRow.id)
    runs = session.scalars(query.execution_options(**_FRESH)).all()
    attempts = _attempts(session, [run.id for run in runs], within)
    by_job = {
        job_id: tuple(_run_value(run, attempts.get(run.id, ())) for run in its)
        for job_id, its in groupby(runs, key=lambda run: run.job_id)
    }
    return [
        _value(
            OrgJob, job, runs=by_job.get(job.id, ()), retry_policy=stored_policy(job.retry_policy)
        )
        for job in jobs
    ]


def _attempts(
    session: Session, run_ids: Iterable[int], within: OrgScope
) -> dict[int, tuple[Attempt, ...]]:
    of_runs = among(session, AttemptRow.run_id, run_ids), *_within(AttemptRow.org_id, within)
    query = select(AttemptRow).where(*of_runs).order_by(AttemptRow.run_id, AttemptRow.attempt_no)
    rows = session.scalars(query.execution_options(**_FRESH))
    return {
        run_id: tuple(_value(Attempt, row) for row in its)
        for run_id, its in groupby(rows, key=lambda row: row.run_id)
    }


def _run_value(row: JobRunRow, attempts: Sequence[Attempt]) -> OrgJobRun:
    return _value(OrgJobRun, row, attempts=tuple(attempts))


def _value(model: type[Shown], row: MetadataTable, **given: object) -> Shown:
    of_row = {name: getattr(row, name) for name in model.model_fields if name not in given}
    return model.model_validate(of_row | given)


def _queue(
    row: OrganisationRow,
    waiting: int,
    put_off: int,
    claimed: int,
    running: int,
    oldest: datetime | None,
) -> QueueCounts:
    return QueueCounts(
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
    """What compares with NULL does not hold, and neither does its contrary, unless it is said
    so."""
    return func.coalesce(condition, False)


def _conditions(within: OrgScope, chosen: JobFilter) -> list[ColumnElement[bool]]:
    wanted = (
        (OrgJobRow.org_id, chosen.org_id),
        (OrgJobRow.status, chosen.status),
        (OrgJobRow.type, chosen.type),
        (OrgJobRow.schedule_id, chosen.schedule_id),
        (OrgJobRow.server_instance_id, chosen.server_instance_id),
        (OrgJobRow.batch_id, chosen.batch_id),
    )
    return _within(OrgJobRow.org_id, within) + [
        column == value for column, value in wanted if value is not None
    ]


def _within(org_id: InstrumentedAttribute[str], within: OrgScope) -> list[ColumnElement[bool]]:
    return [] if within.org_id is None else [org_id == within.org_id]
