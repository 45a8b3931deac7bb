"""Queries over backfills: what of a period was done before, the batch, how it stands, and putting an end to it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Select, func, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.domain.backfill import BACKFILL, Backfill, BackfillInput, Done
from automation_pipeline.org_jobs.domain.endings import cancelled
from automation_pipeline.org_jobs.domain.states import (
    ACTIVE_RUN_STATES,
    BatchState,
    FireOutcome,
    FireTrigger,
    RunState,
)
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.endings import end_attempts
from automation_pipeline.org_jobs.tables import BatchRow, FireRow, JobRow, JobRunRow, ScheduleRow
from automation_pipeline.storage.bulk import among

_SHOWN = ("id", "org_id", "schedule_id", "status", "behaviour", "total", "created_by", "created_at", "finished_at")


def done_in(session: Session, row: ScheduleRow, begin: datetime, end: datetime) -> Mapping[datetime, Done]:
    """What jobs were made for, of a schedule that is locked. Runs by hand are of no due time."""
    query = (
        select(FireRow.scheduled_for, JobRow.status)
        .join(JobRow, JobRow.schedule_fire_id == FireRow.id)
        .where(
            FireRow.schedule_id == row.id,
            FireRow.org_id == row.org_id,
            FireRow.scheduled_for.between(begin, end),
            FireRow.outcome == FireOutcome.DISPATCHED,
            FireRow.trigger != FireTrigger.MANUAL,
        )
        .order_by(FireRow.id)
    )
    found: dict[datetime, list[RunState]] = defaultdict(list)
    for scheduled_for, status in session.execute(query).tuples():
        found[scheduled_for].append(RunState(status))
    return {scheduled_for: Done(tuple(states)) for scheduled_for, states in found.items()}


def add_batch(session: Session, row: ScheduleRow, wish: BackfillInput, actor: str, now: datetime) -> BatchRow:
    """Of a schedule that is locked, with no jobs yet."""
    batch = BatchRow(
        org_id=row.org_id,
        schedule_id=row.id,
        type=BACKFILL,
        status=BatchState.RUNNING,
        behaviour=wish.behaviour,
        from_at=wish.from_at,
        until_at=wish.until_at,
        total=0,
        created_by=actor,
        created_at=now,
    )
    session.add(batch)
    session.flush()
    return batch


def get_backfill(session: Session, batch_id: int, within: Within) -> Backfill:
    return _shown(session, [_found(session, _of(within).where(BatchRow.id == batch_id), batch_id)])[0]


def list_backfills(  # noqa: PLR0913  what narrows the list, by name
    session: Session,
    within: Within,
    *,
    org_id: str | None = None,
    schedule_id: str | None = None,
    status: BatchState | None = None,
    limit: int,
    offset: int,
) -> list[Backfill]:
    """Newest first."""
    exact = ((BatchRow.org_id, org_id), (BatchRow.schedule_id, schedule_id), (BatchRow.status, status))
    query = _of(within).where(*(column == value for column, value in exact if value is not None))
    return _shown(session, session.scalars(query.order_by(BatchRow.id.desc()).limit(limit).offset(offset)).all())


def locked_batch(session: Session, batch_id: int, within: Within) -> BatchRow:
    """Its schedule is locked first, as it is by whoever ends its jobs."""
    schedule_id = _found(session, _of(within).where(BatchRow.id == batch_id), batch_id).schedule_id
    session.execute(select(ScheduleRow.id).where(ScheduleRow.id == schedule_id).with_for_update())
    return _found(session, _of(within).where(BatchRow.id == batch_id).with_for_update(), batch_id)


def stop_batch(session: Session, batch: BatchRow, actor: str, now: datetime, reason: str) -> None:
    """What waits is cancelled, what is at work is asked to stop."""
    active = select(JobRunRow.id, JobRunRow.status).join(JobRow, JobRow.id == JobRunRow.job_id)
    of_batch = active.where(JobRow.batch_id == batch.id, JobRunRow.status.in_(ACTIVE_RUN_STATES))
    locked = of_batch.order_by(JobRunRow.id).with_for_update(of=JobRunRow)
    statuses = dict(session.execute(locked).tuples().all())
    at_work = [run_id for run_id, status in statuses.items() if status == RunState.RUNNING]
    session.execute(
        update(JobRunRow)
        .where(among(session, JobRunRow.id, at_work), JobRunRow.cancel_requested_at.is_(None))
        .values(cancel_requested_at=now, cancelled_by=actor, cancel_reason=reason)
        .execution_options(synchronize_session=False)
    )
    waiting = statuses.keys() - set(at_work)
    end_attempts(session, {run_id: cancelled(reason) for run_id in sorted(waiting)}, actor, now)


def _of(within: Within) -> Select[tuple[BatchRow]]:
    query = select(BatchRow).where(BatchRow.type == BACKFILL)
    return query if within.org_id is None else query.where(BatchRow.org_id == within.org_id)


def _found(session: Session, query: Select[tuple[BatchRow]], batch_id: int) -> BatchRow:
    row = session.scalar(query.execution_options(populate_existing=True))
    if row is None:
        raise NotFoundError(f"Backfill {batch_id} does not exist.")
    return row


def _shown(session: Session, rows: Sequence[BatchRow]) -> list[Backfill]:
    query = (
        select(JobRow.batch_id, JobRow.status, func.count(JobRow.id))
        .where(among(session, JobRow.batch_id, [row.id for row in rows]))
        .group_by(JobRow.batch_id, JobRow.status)
    )
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    for batch_id, status, count in session.execute(query).tuples():
        counts[batch_id or 0][status] = count
    return [_backfill(row, counts[row.id]) for row in rows]


def _backfill(row: BatchRow, counts: Mapping[str, int]) -> Backfill:
    known = {name: getattr(row, name) for name in _SHOWN}
    return Backfill.model_validate({**known, "from_at": row.from_at, "until_at": row.until_at, **counts})
