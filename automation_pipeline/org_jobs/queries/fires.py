"""Queries of fires, one per due time with its job, and of the batches of backfills."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Select, func, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import AutomationError, NotFoundError
from automation_pipeline.core.events import Event
from automation_pipeline.org_jobs import events
from automation_pipeline.org_jobs.models.jobs import attempt_cancelled
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.models.states import (
    ACTIVE_RUN_STATES,
    BatchState,
    FireOutcome,
    FireTrigger,
    OrgJobsRunState,
)
from automation_pipeline.org_jobs.queries.attempts import end_attempts, record_failure
from automation_pipeline.org_jobs.queries.jobs import NewJob, add_jobs
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
from automation_pipeline.storage.statements import among, insert_into


@dataclass(frozen=True, kw_only=True)
class NewFire:
    """`job` is created when the fire is dispatched, with its `fire_id`. `fault`: why it cannot be created."""

    org_id: str
    schedule_id: str
    fire: PlannedFire
    actor: str
    job: NewJob | None = None
    fault: str | None = None
    batch_id: int | None = None
    client_key: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class WrittenFire:
    """`error`: why its job could not be created."""

    new: NewFire
    fire_id: int
    job_id: int | None = None
    error: str | None = None

    @property
    def outcome(self) -> FireOutcome:
        if self.new.fire.skip is not None:
            return FireOutcome.SKIPPED
        return FireOutcome.FAILED if self.job_id is None else FireOutcome.DISPATCHED


def write_fires(session: Session, fires: Sequence[NewFire], now: datetime) -> list[WrittenFire]:
    """Write the fires with their jobs. Due times that are already decided are skipped. A fire whose
    job cannot be created does not affect the others."""
    quiet = [one for one in fires if one.job is None]
    written = _write(session, quiet, now)
    dispatched = [one for one in fires if one.job is not None]
    if not dispatched:
        return written
    try:
        with session.begin_nested():
            return written + _dispatch(session, dispatched, now)
    except (DBAPIError, AutomationError):
        return written + [done for one in dispatched for done in _dispatch_alone(session, one, now)]


def _dispatch_alone(session: Session, one: NewFire, now: datetime) -> list[WrittenFire]:
    try:
        with session.begin_nested():
            return _dispatch(session, [one], now)
    except (DBAPIError, AutomationError) as error:
        return _write(session, [one], now, fault=f"Its job could not be created: {_words(error)}")


def _dispatch(session: Session, fires: Sequence[NewFire], now: datetime) -> list[WrittenFire]:
    written = _write(session, fires, now)
    jobs = [_of_fire(one) for one in written]
    return [
        WrittenFire(one.new, one.fire_id, job_id)
        for one, job_id in zip(written, add_jobs(session, jobs, now), strict=True)
    ]


def _write(
    session: Session, fires: Sequence[NewFire], now: datetime, fault: str | None = None
) -> list[WrittenFire]:
    """Insert the fires and return those that were inserted: a decided due time already has its row."""
    if not fires:
        return []
    table = FireRow.__table__
    statement = (
        insert_into(session, FireRow)
        .on_conflict_do_nothing()
        .returning(table.c.id, table.c.schedule_id, table.c.scheduled_for)
    )
    added = session.execute(statement, [_columns(one, now, fault) for one in fires]).tuples()
    ids = {(schedule_id, scheduled_for): id_ for id_, schedule_id, scheduled_for in added}
    return [
        WrittenFire(one, ids[key], error=fault or one.fault)
        for one in fires
        if (key := (one.schedule_id, one.fire.scheduled_for)) in ids
    ]


def _columns(one: NewFire, now: datetime, fault: str | None) -> dict[str, object]:
    error = fault or one.fault
    outcome = (
        FireOutcome.SKIPPED
        if one.fire.skip
        else FireOutcome.FAILED
        if error
        else FireOutcome.DISPATCHED
    )
    return {
        "org_id": one.org_id,
        "schedule_id": one.schedule_id,
        "scheduled_for": one.fire.scheduled_for,
        "effective_for": one.fire.effective_for,
        "fired_at": now,
        "trigger": one.fire.trigger,
        "outcome": outcome,
        "skip_reason": one.fire.skip,
        "batch_id": one.batch_id,
        "client_key": one.client_key,
        "actor": one.actor,
        "error": error,
        "note": one.note,
    }


def _of_fire(one: WrittenFire) -> NewJob:
    assert one.new.job is not None  # noqa: S101  only such are dispatched
    return replace(one.new.job, fire_id=one.fire_id)


def _words(error: Exception) -> str:
    origin = error.orig if isinstance(error, DBAPIError) else error
    return " ".join(str(origin).split())[:500]


_SHOWN = (
    "id",
    "org_id",
    "schedule_id",
    "status",
    "behaviour",
    "total",
    "created_by",
    "created_at",
    "finished_at",
)


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
    return _shown(session, [_found(session, _of(within).where(BatchRow.id == batch_id), batch_id)])[
        0
    ]


def list_backfills(  # noqa: PLR0913  what narrows the list, by name
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
    exact = (
        (BatchRow.org_id, org_id),
        (BatchRow.schedule_id, schedule_id),
        (BatchRow.status, status),
    )
    query = _of(within).where(*(column == value for column, value in exact if value is not None))
    return _shown(
        session,
        session.scalars(query.order_by(BatchRow.id.desc()).limit(limit).offset(offset)).all(),
    )


def lock_batch(session: Session, batch_id: int, within: OrgScope) -> BatchRow:
    """Lock the schedule first, in the same order as `end_attempts`."""
    schedule_id = _found(session, _of(within).where(BatchRow.id == batch_id), batch_id).schedule_id
    session.execute(
        select(OrgScheduleRow.id).where(OrgScheduleRow.id == schedule_id).with_for_update()
    )
    return _found(session, _of(within).where(BatchRow.id == batch_id).with_for_update(), batch_id)


def stop_batch(session: Session, batch: BatchRow, actor: str, now: datetime, reason: str) -> None:
    """Cancel the jobs that have not started, and ask the others to stop."""
    active = select(JobRunRow.id, JobRunRow.status).join(
        OrgJobRow, OrgJobRow.id == JobRunRow.job_id
    )
    of_batch = active.where(OrgJobRow.batch_id == batch.id, JobRunRow.status.in_(ACTIVE_RUN_STATES))
    locked = of_batch.order_by(JobRunRow.id).with_for_update(of=JobRunRow)
    statuses = dict(session.execute(locked).tuples().all())
    at_work = [run_id for run_id, status in statuses.items() if status == OrgJobsRunState.RUNNING]
    session.execute(
        update(JobRunRow)
        .where(among(session, JobRunRow.id, at_work), JobRunRow.cancel_requested_at.is_(None))
        .values(cancel_requested_at=now, cancelled_by=actor, cancel_reason=reason)
        .execution_options(synchronize_session=False)
    )
    waiting = statuses.keys() - set(at_work)
    end_attempts(
        session, {run_id: attempt_cancelled(reason) for run_id in sorted(waiting)}, actor, now
    )


def _of(within: OrgScope) -> Select[tuple[BatchRow]]:
    query = select(BatchRow).where(BatchRow.type == BACKFILL)
    return query if within.org_id is None else query.where(BatchRow.org_id == within.org_id)


def _found(session: Session, query: Select[tuple[BatchRow]], batch_id: int) -> BatchRow:
    row = session.scalar(query.execution_options(populate_existing=True))
    if row is None:
        raise NotFoundError(f"Backfill {batch_id} not found")
    return row


def _shown(session: Session, rows: Sequence[BatchRow]) -> list[Backfill]:
    query = (
        select(OrgJobRow.batch_id, OrgJobRow.status, func.count(OrgJobRow.id))
        .where(among(session, OrgJobRow.batch_id, [row.id for row in rows]))
        .group_by(OrgJobRow.batch_id, OrgJobRow.status)
    )
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    for batch_id, status, count in session.execute(query).tuples():
        counts[batch_id or 0][status] = count
    return [_backfill(row, counts[row.id]) for row in rows]


def _backfill(row: BatchRow, counts: Mapping[str, int]) -> Backfill:
    known = {name: getattr(row, name) for name in _SHOWN}
    return Backfill.model_validate(
        {**known, "from_at": row.from_at, "until_at": row.until_at, **counts}
    )


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
    made = [
        NewFire(
            org_id=row.org_id,
            schedule_id=row.id,
            fire=PlannedFire(one.scheduled_for, one.effective_for, FireTrigger.BACKFILL),
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
            record_failure(session, row, now)
    enqueue(session, list(_events(row, written, now)))
    session.flush()


def _job(job: NewJob, batch: BatchRow, one: BackfillTime, place: int) -> NewJob:
    """A job in line may wait for each job before it up to the limit of its type."""
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


def _events(row: OrgScheduleRow, written: Sequence[WrittenFire], now: datetime) -> Iterator[Event]:
    for one in written:
        if one.job_id is not None:
            yield events.schedule_fired(
                row.org_id, row.id, one.new.fire, one.fire_id, one.job_id, now
            )
        else:
            message = one.error or ""
            yield events.schedule_failed(
                row.org_id,
                row.id,
                one.new.fire,
                one.fire_id,
                now,
                error=message,
                in_a_row=row.consecutive_failures,
            )
