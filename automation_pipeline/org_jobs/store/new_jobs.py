"""Jobs as they are made: each with its first run, many in two statements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy import Table, insert
from sqlalchemy.orm import Session

from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.domain.expiry import WAITS, expires_at
from automation_pipeline.org_jobs.domain.job_type import JobType
from automation_pipeline.org_jobs.domain.retry_policy import RetryPolicy
from automation_pipeline.org_jobs.domain.states import FIRST_RUN_STATE
from automation_pipeline.org_jobs.tables import JobRow, JobRunRow


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """`line`: jobs of one line are done one after another. `host_id`: that of its server, where it has one. Unless it
    has begun within `waits` of when it may, it fails; it does not begin before `not_before`."""

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
    """Their ids, in the same order. They may begin at once. Of several, each is of a fire of its own."""
    if not jobs:
        return []
    table = cast("Table", JobRow.__table__)
    statement = insert(table).returning(table.c.schedule_fire_id, table.c.id)
    by_fire = dict(iter(session.execute(statement, [_job(job, now) for job in jobs]).tuples()))
    ids = [by_fire[job.fire_id] for job in jobs]
    session.execute(insert(JobRunRow), [_run(job, id_, now) for id_, job in zip(ids, jobs, strict=True)])
    return ids


def run_columns(job: JobRow, created_by: str, now: datetime, *, like: JobRunRow) -> dict[str, object]:
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
        "payload": dict(job.payload),
        "priority": job.priority,
        "retry_policy": as_document(job.retry),
        "start_window": job.start_window,
        "status": FIRST_RUN_STATE,
        "expires_at": expires_at(job.not_before or now, has_window=job.start_window is not None, waits=job.waits),
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
