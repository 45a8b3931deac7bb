"""Queries of fires, one per due time with its job, and of the batches of backfills."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Select, func, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import AutomationError, NotFoundError
from automation_pipeline.core.events import Event
from automation_pipeline.org_jobs.events import schedule_event
from automation_pipeline.org_jobs.models.jobs import (
    ACTIVE_RUN_STATES,
    BatchState,
    FireOutcome,
    FireTrigger,
    OrgJobsRunState,
    attempt_cancelled,
)
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.queries.attempts import end_attempts, record_failure
from automation_pipeline.org_jobs.queries.jobs import NewJob, add_jobs, shown
from automation_pipeline.org_jobs.rules.due import (
    BACKFILL,
    Backfill,
    BackfillInput,
    BackfillTime,
    PlannedFire,
    less_urgent,
)
from automation_pipeline.org_jobs.tables import (
    BatchRow,
    FireRow,
    JobRunRow,
    OrgJobRow,
    OrgScheduleRow,
)
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import (
    FRESH,
    UNSYNCHRONIZED,
    among,
    insert_into,
    where_given,
)


@dataclass(frozen=True, kw_only=True)
class Fire:
    """A decided due time. `job` is created if it is dispatched; `fault` says why it cannot be
    created. `id` and `job_id` are known once the fire is written."""

    org_id: str
    schedule_id: str
    planned: PlannedFire
    actor: str
    job: NewJob | None = None
    fault: str | None = None
    batch_id: int | None = None
    client_key: str | None = None
    note: str | None = None
    id: int = 0
    job_id: int | None = None

    @property
    def outcome(self) -> FireOutcome:
        if self.planned.skip is not None:
            return FireOutcome.SKIPPED
        return FireOutcome.DISPATCHED if self.fault is None else FireOutcome.FAILED


def write_fires(session: Session, fires: Sequence[Fire], now: datetime) -> list[Fire]:
    """Write the fires with their jobs, and return those that were written: due times that are
    already decided are skipped. A fire whose job cannot be created does not affect the others."""
    written = _write(session, [one for one in fires if one.job is None], now)
    with_job = [one for one in fires if one.job is not None]
    if not with_job:
        return written
    try:
        return written + _dispatch(session, with_job, now)
    except (DBAPIError, AutomationError):
        return written + [done for one in with_job for done in _dispatch_alone(session, one, now)]


def _dispatch_alone(session: Session, one: Fire, now: datetime) -> list[Fire]:
    try:
        return _dispatch(session, [one], now)
    except (DBAPIError, AutomationError) as error:
        origin = error.orig if isinstance(error, DBAPIError) else error
        why = f"Its job could not be created: {' '.join(str(origin).split())[:500]}"
        return _write(session, [replace(one, fault=why)], now)


def _dispatch(session: Session, fires: Sequence[Fire], now: datetime) -> list[Fire]:
    with session.begin_nested():
        written = _write(session, fires, now)
        jobs = [replace(one.job, fire_id=one.id) for one in written if one.job is not None]
        job_ids = add_jobs(session, jobs, now)
    return [replace(one, job_id=job_id) for one, job_id in zip(written, job_ids, strict=True)]


def _write(session: Session, fires: Sequence[Fire], now: datetime) -> list[Fire]:
    if not fires:
        return []
    table = FireRow.__table__
    statement = (
        insert_into(session, FireRow)
        .on_conflict_do_nothing()
        .returning(table.c.id, table.c.schedule_id, table.c.scheduled_for)
    )
    added = session.execute(statement, [_columns(one, now) for one in fires]).tuples()
    ids = {(schedule_id, scheduled_for): id_ for id_, schedule_id, scheduled_for in added}
    return [
        replace(one, id=ids[key])
        for one in fires
        if (key := (one.schedule_id, one.planned.scheduled_for)) in ids
    ]


def _columns(one: Fire, now: datetime) -> dict[str, object]:
    return {
        "org_id": one.org_id,
        "schedule_id": one.schedule_id,
        "scheduled_for": one.planned.scheduled_for,
        "effective_for": one.planned.effective_for,
        "fired_at": now,
        "trigger": one.planned.trigger,
        "outcome": one.outcome,
        "skip_reason": one.planned.skip,
        "batch_id": one.batch_id,
        "client_key": one.client_key,
        "actor": one.actor,
        "error": one.fault,
        "note": one.note,
    }


def fire_event(row: OrgScheduleRow, one: Fire, now: datetime) -> Event:
    """`schedule.fired`, `schedule.skipped` or `schedule.failed`."""
    planned, name = one.planned, "fired"
    payload: dict[str, object] = {
        "fireId": str(one.id),
        "scheduledFor": iso(planned.scheduled_for),
    }
    match one.outcome:
        case FireOutcome.DISPATCHED:
            payload |= {
                "jobId": str(one.job_id),
                "effectiveFor": iso(planned.effective_for),
                "latencyMs": round((now - planned.effective_for).total_seconds() * 1000),
                "trigger": planned.trigger,
            }
        case FireOutcome.SKIPPED:
            name, payload["reason"] = "skipped", planned.skip
        case FireOutcome.FAILED:
            failures = row.consecutive_failures
            name, payload = (
                "failed",
                {**payload, "error": one.fault, "consecutiveFailures": failures},
            )
    return schedule_event(row.org_id, row.id, name, str(one.id), now, payload)


def jobs_made_between(
    session: Session, row: OrgScheduleRow, begin: datetime, end: datetime
) -> Mapping[datetime, Sequence[OrgJobsRunState]]:
    """By due time, the states of its jobs, oldest first. The schedule is locked. Manual runs have
    no due time."""
    query = (
        select(FireRow.scheduled_for, OrgJobRow.status)
        .join(OrgJobRow, OrgJobRow.schedule_fire_id == FireRow.id)
        .where(
            FireRow.schedule_id == row.id,
            FireRow.org_id == row.org_id,
            FireRow.scheduled_for.between(begin, end),
            FireRow.outcome == FireOutcome.DISPATCHED,
            FireRow.trigger != FireTrigger.MANUAL,
        )
        .order_by(FireRow.id)
    )
    found: dict[datetime, list[OrgJobsRunState]] = defaultdict(list)
    for scheduled_for, status in session.execute(query).tuples():
        found[scheduled_for].append(OrgJobsRunState(status))
    return found


def add_batch(
    session: Session, row: OrgScheduleRow, request: BackfillInput, actor: str, now: datetime
) -> BatchRow:
    """The schedule is locked. The batch has no jobs yet."""
    batch = BatchRow(
        org_id=row.org_id,
        schedule_id=row.id,
        type=BACKFILL,
        status=BatchState.RUNNING,
        behaviour=request.behaviour,
        from_at=request.from_at,
        until_at=request.until_at,
        total=0,
        created_by=actor,
        created_at=now,
    )
    session.add(batch)
    session.flush()
    return batch


def get_backfill(session: Session, batch_id: int, within: OrgScope) -> Backfill:
    row = _found(session, _visible(batch_id, within), batch_id)
    [backfill] = _shown(session, [row])
    return backfill


def list_backfills(  # noqa: PLR0913  the filters of the list, by name
    session: Session,
    within: OrgScope,
    *,
    org_id: str | None = None,
    schedule_id: str | None = None,
    status: BatchState | None = None,
    limit: int,
    offset: int,
) -> list[Backfill]:
    """Newest first."""
    page = (
        select(BatchRow)
        .where(
            BatchRow.type == BACKFILL,
            *where_given(
                (BatchRow.org_id, within.org_id),
                (BatchRow.org_id, org_id),
                (BatchRow.schedule_id, schedule_id),
                (BatchRow.status, status),
            ),
        )
        .order_by(BatchRow.id.desc())
        .limit(limit)
        .offset(offset)
    )
    return _shown(session, session.scalars(page).all())


def lock_batch(session: Session, batch_id: int, within: OrgScope) -> BatchRow:
    """Lock the schedule first, in the same order as `end_attempts`."""
    query = _visible(batch_id, within)
    schedule_id = _found(session, query, batch_id).schedule_id
    session.execute(
        select(OrgScheduleRow.id).where(OrgScheduleRow.id == schedule_id).with_for_update()
    )
    return _found(session, query.with_for_update(), batch_id)


def stop_batch(session: Session, batch: BatchRow, actor: str, now: datetime, reason: str) -> None:
    """Cancel the jobs that have not started, and ask the others to stop."""
    locked = (
        select(JobRunRow.id, JobRunRow.status)
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .where(OrgJobRow.batch_id == batch.id, JobRunRow.status.in_(ACTIVE_RUN_STATES))
        .order_by(JobRunRow.id)
        .with_for_update(of=JobRunRow)
    )
    statuses = dict(session.execute(locked).tuples().all())
    at_work = [run_id for run_id, status in statuses.items() if status == OrgJobsRunState.RUNNING]
    session.execute(
        update(JobRunRow)
        .where(among(session, JobRunRow.id, at_work), JobRunRow.cancel_requested_at.is_(None))
        .values(cancel_requested_at=now, cancelled_by=actor, cancel_reason=reason)
        .execution_options(**UNSYNCHRONIZED)
    )
    waiting = statuses.keys() - set(at_work)
    end_attempts(
        session, {run_id: attempt_cancelled(reason) for run_id in sorted(waiting)}, actor, now
    )


def _visible(batch_id: int, within: OrgScope) -> Select[tuple[BatchRow]]:
    return select(BatchRow).where(
        BatchRow.id == batch_id,
        BatchRow.type == BACKFILL,
        *where_given((BatchRow.org_id, within.org_id)),
    )


def _found(session: Session, query: Select[tuple[BatchRow]], batch_id: int) -> BatchRow:
    row = session.scalar(query.execution_options(**FRESH))
    if row is None:
        raise NotFoundError(f"Backfill {batch_id} not found")
    return row


def _shown(session: Session, rows: Sequence[BatchRow]) -> list[Backfill]:
    counts = (
        select(OrgJobRow.batch_id, OrgJobRow.status, func.count(OrgJobRow.id))
        .where(among(session, OrgJobRow.batch_id, [row.id for row in rows]))
        .group_by(OrgJobRow.batch_id, OrgJobRow.status)
    )
    by_batch: defaultdict[int | None, dict[str, int]] = defaultdict(
        lambda: {state.value: 0 for state in OrgJobsRunState}
    )
    for batch_id, status, count in session.execute(counts).tuples():
        by_batch[batch_id][status] = count
    return [shown(Backfill, row, dry_run=False, times=(), **by_batch[row.id]) for row in rows]


def write_batch(
    session: Session,
    row: OrgScheduleRow,
    batch: BatchRow,
    times: Sequence[BackfillTime],
    *,
    job: NewJob,
    now: datetime,
) -> None:
    """Write the fires of a batch. The schedule is locked, and `job` is the model of the jobs."""
    created = [
        Fire(
            org_id=row.org_id,
            schedule_id=row.id,
            planned=PlannedFire(one.scheduled_for, one.effective_for, FireTrigger.BACKFILL),
            actor=batch.created_by,
            job=_job(job, batch, one, position),
            batch_id=batch.id,
        )
        for position, one in enumerate(times)
    ]
    written = write_fires(session, created, now)
    batch.total = sum(one.job_id is not None for one in written)
    if batch.total == 0:
        batch.status = BatchState.COMPLETED_WITH_FAILURES if written else BatchState.COMPLETED
        batch.finished_at = now
    row.run_count += batch.total
    for one in written:
        if one.job_id is None:
            record_failure(session, row, now)
    enqueue(session, [fire_event(row, one, now) for one in written])
    session.flush()


def _job(job: NewJob, batch: BatchRow, one: BackfillTime, position: int) -> NewJob:
    """A job in line may wait for each job before it up to the limit of its type."""
    ahead = timedelta(seconds=position * job.type.limit_seconds if job.line is not None else 0)
    return replace(
        job,
        scheduled_for=one.scheduled_for,
        batch_id=batch.id,
        created_by=batch.created_by,
        priority=less_urgent(job.priority),
        longest_wait=job.longest_wait + ahead,
        line=None if job.line is None else f"backfill-{batch.id}",
    )
