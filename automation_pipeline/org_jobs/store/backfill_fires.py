"""What a backfill writes: a fire and a job for each of its due times, and what its schedule remembers of that."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from automation_pipeline.core.events import Event
from automation_pipeline.org_jobs.domain import events
from automation_pipeline.org_jobs.domain.backfill import BackfillTime, less_urgent
from automation_pipeline.org_jobs.domain.due import Fire
from automation_pipeline.org_jobs.domain.states import BatchState, FireTrigger
from automation_pipeline.org_jobs.store.fires import NewFire, WrittenFire, write_fires
from automation_pipeline.org_jobs.store.new_jobs import NewJob
from automation_pipeline.org_jobs.store.outcomes import note_failure
from automation_pipeline.org_jobs.tables import BatchRow, ScheduleRow
from automation_pipeline.storage.outbox import enqueue


def write_batch(
    session: Session,
    row: ScheduleRow,
    batch: BatchRow,
    times: Sequence[BackfillTime],
    *,
    job: NewJob,
    now: datetime,
) -> None:
    """Of a schedule that is locked; its jobs are like `job`."""
    made = [
        NewFire(
            org_id=row.org_id,
            schedule_id=row.id,
            fire=Fire(one.scheduled_for, one.effective_for, FireTrigger.BACKFILL),
            actor=batch.created_by,
            job=_job(job, batch, one, place),
            batch_id=batch.id,
        )
        for place, one in enumerate(times)
    ]
    written = write_fires(session, made, now)
    batch.total = sum(one.job_id is not None for one in written)
    if batch.total == 0:
        batch.status = BatchState.COMPLETED_WITH_FAILURES if written else BatchState.COMPLETED
        batch.finished_at = now
    row.run_count += batch.total
    for one in written:
        if one.job_id is None:
            note_failure(session, row, now)
    enqueue(session, list(_events(row, written, now)))
    session.flush()


def _job(job: NewJob, batch: BatchRow, one: BackfillTime, place: int) -> NewJob:
    """Where it waits in line for those before it, they may take as long as its type allows."""
    ahead = timedelta(seconds=place * job.type.limit_seconds if job.line is not None else 0)
    return replace(
        job,
        scheduled_for=one.scheduled_for,
        batch_id=batch.id,
        created_by=batch.created_by,
        priority=less_urgent(job.priority),
        waits=job.waits + ahead,
        line=None if job.line is None else f"backfill-{batch.id}",
    )


def _events(row: ScheduleRow, written: Sequence[WrittenFire], now: datetime) -> Iterator[Event]:
    for one in written:
        if one.job_id is not None:
            yield events.fired(row.org_id, row.id, one.new.fire, one.fire_id, one.job_id, now)
        else:
            said = one.error or ""
            yield events.failed(
                row.org_id, row.id, one.new.fire, one.fire_id, now, error=said, in_a_row=row.consecutive_failures
            )
