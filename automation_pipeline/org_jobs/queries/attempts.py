"""Attempts at runs: start, extend, follow, end and retry them.

Attempts end in one place, `end_attempts`: run, job, schedule, batch, log and events together.
Schedules are locked before runs, here and by the dispatcher, so that transactions do not
deadlock."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random

from sqlalchemy import ColumnElement, Select, and_, case, exists, insert, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, TransientError
from automation_pipeline.core.events import Event
from automation_pipeline.org_jobs.events import run_event, schedule_event
from automation_pipeline.org_jobs.models.jobs import (
    ACTIVE_RUN_STATES,
    FIRST_RUN_STATE,
    JOB_RUN,
    AttemptEnd,
    BatchState,
    OrgJobsRunState,
    Performer,
    RunEnd,
    ScheduleState,
    end_of_unattended,
    expires_at,
    run_end,
    start_window,
    stored_policy,
)
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.queries.jobs import no_such_job
from automation_pipeline.org_jobs.queries.queue import (
    IS_ACTIVE,
    IS_PENDING,
    IS_RUNNING,
    RUNS,
    AttemptHold,
    Run,
    has_open_organisation,
    no_such_run,
)
from automation_pipeline.org_jobs.tables import (
    AttemptRow,
    BatchRow,
    JobRunRow,
    OrgJobRow,
    OrgScheduleRow,
)
from automation_pipeline.storage.claims import LostClaimError
from automation_pipeline.storage.history import Transition, TransitionRow, record_transitions
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import (
    FRESH,
    UNSYNCHRONIZED,
    among,
    database_now,
    database_time,
    where_given,
)

SCHEDULER = "scheduler"


class LostLeaseError(ConflictError):
    """The attempt ended or has another holder: its former holder must stop."""


class JobRunBusyError(TransientError):
    """Another worker or agent holds the run."""


def held_run(session: Session, hold: AttemptHold, *, to_end: bool = False) -> JobRunRow:
    """The run, locked until the transaction ends. Raises LostLeaseError unless the holder still holds the
    attempt. `to_end`: the attempt may be ended in this transaction."""
    if to_end:
        _lock_schedules_of(session, [hold.run_id])
    lost = f"Attempt {hold.attempt_no} of job run {hold.run_id} is no longer yours."
    try:
        run = RUNS.require(session, hold.run_id, hold.token)
    except LostClaimError:
        raise LostLeaseError(lost) from None
    if run.attempt_no != hold.attempt_no:
        raise LostLeaseError(lost)
    return run


def start_run(
    session: Session, hold: AttemptHold, deadline_at: datetime, now: datetime, *, actor: str
) -> JobRunRow:
    """Move the run from pending to running, once per attempt; a running attempt stays unchanged.
    Raises LostLeaseError like `held_run`."""
    run = held_run(session, hold)
    if run.status == OrgJobsRunState.RUNNING:
        return run
    run.status = JOB_RUN.move(OrgJobsRunState(run.status), OrgJobsRunState.RUNNING)
    run.started_at, run.deadline_at = now, deadline_at
    run.error = run.error_code = run.result = run.log_ref = None
    session.flush()
    session.execute(
        update(OrgJobRow)
        .where(OrgJobRow.id == run.job_id)
        .values(status=OrgJobsRunState.RUNNING)
        .execution_options(**UNSYNCHRONIZED)
    )
    states = OrgJobsRunState.PENDING, OrgJobsRunState.RUNNING
    record_transitions(session, [Transition(JOB_RUN.name, str(run.id), *states, actor, now)])
    payload = {"jobId": str(run.job_id), "scheduleId": run.schedule_id}
    enqueue(session, [run_event(run.org_id, run.id, run.attempt_no, "started", now, payload)])
    return run


def extend_lease(session: Session, hold: AttemptHold, seconds: float) -> JobRunRow:
    """Raises LostLeaseError like `held_run`."""
    RUNS.extend(session, [(hold.run_id, hold.token)], seconds)
    return held_run(session, hold)


def follow_run(session: Session, run: JobRunRow, following: Mapping[str, object]) -> None:
    """Release a held run whose work another package continues: `follow_jobs` follows it."""
    run.following = dict(following)
    RUNS.release(session, [(run.id, run.lease_token)])


def check_unclaimed(session: Session, run_id: int) -> None:
    """Raises JobRunBusyError if the run has a holder with a valid lease."""
    until = session.scalar(select(Run.lease_until).where(Run.id == run_id, IS_RUNNING))
    now = database_time(session)
    if until is not None and until > now:
        left = (until - now).total_seconds()
        raise JobRunBusyError(f"Job run {run_id} is in progress.", retry_after_seconds=left + 1)


def locked_run(session: Session, run_id: int) -> JobRunRow:
    """Lock the run. A caller that may end the attempt must have locked the schedule."""
    run = session.scalar(
        select(Run).where(Run.id == run_id).with_for_update().execution_options(**FRESH)
    )
    if run is None:
        raise no_such_run(run_id)
    return run


def newest_run(session: Session, job_id: int, within: OrgScope) -> JobRunRow:
    """Lock the newest run with its schedule, so that the caller may end or retry it."""
    run_id = _newest_id(session, job_id, within)
    while True:
        _lock_schedules_of(session, [run_id])
        run = locked_run(session, run_id)
        newest_id = _newest_id(session, job_id, within)
        if newest_id == run_id:
            return run
        run_id = newest_id


def _newest_id(session: Session, job_id: int, within: OrgScope) -> int:
    run_id = session.scalar(
        select(Run.id)
        .where(Run.job_id == job_id, *where_given((Run.org_id, within.org_id)))
        .order_by(Run.id.desc())
        .limit(1)
    )
    if run_id is None:
        raise no_such_job(job_id)
    return run_id


def repeat_run(session: Session, run: JobRunRow, actor: str, now: datetime) -> None:
    """Add a run to the job of an ended, locked run. The batch of the job is running again."""
    job_query = select(OrgJobRow).where(OrgJobRow.id == run.job_id)
    job = session.scalars(job_query.execution_options(**FRESH)).one()
    new_run = JobRunRow(
        job_id=job.id,
        org_id=job.org_id,
        schedule_id=job.schedule_id,
        host_id=run.host_id,
        performer=job.performer,
        is_mutation=run.is_mutation,
        priority=job.priority,
        line=run.line,
        status=FIRST_RUN_STATE,
        max_attempts=run.max_attempts,
        created_by=actor,
        created_at=now,
    )
    session.add(new_run)
    job.status, job.finished_at = new_run.status, None
    job.expires_at = expires_at(now, has_window=job.start_window is not None)
    session.flush()
    if job.batch_id is not None:
        session.execute(
            update(BatchRow)
            .where(BatchRow.id == job.batch_id)
            .values(status=BatchState.RUNNING, finished_at=None)
            .execution_options(**UNSYNCHRONIZED)
        )


_EVENT_NAMES = {
    OrgJobsRunState.SUCCESS: "succeeded",
    OrgJobsRunState.FAILED: "failed",
    OrgJobsRunState.CANCELLED: "cancelled",
}


# A run whose work another package continues, and its job.
FollowedRun = tuple[JobRunRow, OrgJobRow]


@dataclass(frozen=True)
class EndedRun:
    run: JobRunRow
    job: OrgJobRow
    end: AttemptEnd
    decided: RunEnd
    attempt_no: int
    was: OrgJobsRunState

    @property
    def is_final(self) -> bool:
        return self.decided.state is not OrgJobsRunState.PENDING


def end_attempts(
    session: Session,
    ends: Mapping[int, AttemptEnd],
    actor: str,
    now: datetime,
    random: Random | None = None,
) -> list[EndedRun]:
    """End the attempts, by run; runs that have already ended are skipped. The caller checks who may
    end an attempt, and has locked the runs with their schedules, or none of them."""
    if not ends:
        return []
    _lock_schedules_of(session, ends)
    query = select(Run, OrgJobRow).join(OrgJobRow, OrgJobRow.id == Run.job_id)
    locked = _locked(query.where(among(session, Run.id, ends), IS_ACTIVE))
    ended = [
        _ended(run, job, ends[run.id], now, random or Random())
        for run, job in session.execute(locked).tuples()
    ]
    attempts = [_attempt(one, now) for one in ended if one.was is OrgJobsRunState.RUNNING]
    if attempts:
        session.execute(insert(AttemptRow), attempts)
    moves = [move for one in ended for move in _moves(one, actor, now)]
    if moves:
        session.execute(insert(TransitionRow), moves)
    final = [one for one in ended if one.is_final]
    record_outcomes(session, final, now)
    enqueue(session, [_event(one, now) for one in ended])
    session.flush()
    _close_batches(
        session, {one.job.batch_id for one in final if one.job.batch_id is not None}, now
    )
    return ended


def _lock_schedules_of(session: Session, run_ids: Collection[int]) -> None:
    of_runs = select(Run.schedule_id).where(among(session, Run.id, run_ids))
    session.execute(
        select(OrgScheduleRow.id)
        .where(OrgScheduleRow.id.in_(of_runs))
        .order_by(OrgScheduleRow.id)
        .with_for_update()
    )


def _locked(query: Select[tuple[JobRunRow, OrgJobRow]]) -> Select[tuple[JobRunRow, OrgJobRow]]:
    """Lock in the order of the runs' ids, like every other transaction, to avoid deadlocks."""
    return query.order_by(Run.id).with_for_update(of=Run).execution_options(**FRESH)


def _ended(
    run: JobRunRow, job: OrgJobRow, end: AttemptEnd, now: datetime, random: Random
) -> EndedRun:
    """Write the end of the attempt to the run and its job."""
    was = OrgJobsRunState(run.status)
    decided = run_end(
        end,
        from_state=was,
        attempt_no=run.attempt_no,
        policy=stored_policy(job.retry_policy),
        window=start_window(job.start_window),
        is_cancel_wanted=run.cancel_requested_at is not None,
        now=now,
        random=random,
    )
    ended = EndedRun(run, job, end, decided, run.attempt_no, was)
    run.status = job.status = decided.state
    run.result, run.log_ref = end.result, end.log_ref
    run.error_code, run.error = end.error_code, end.error
    run.lease_until = run.deadline_at = run.following = run.requested_at = None
    run.next_attempt_at = decided.retry_at
    if ended.is_final:
        run.finished_at = job.finished_at = now
    else:
        run.attempt_no, run.progress, run.progress_at = run.attempt_no + 1, None, None
        has_window = job.start_window is not None
        job.expires_at = expires_at(decided.retry_at or now, has_window=has_window)
    return ended


def _attempt(one: EndedRun, now: datetime) -> dict[str, object]:
    run, end = one.run, one.end
    return {
        "run_id": run.id,
        "org_id": run.org_id,
        "attempt_no": one.attempt_no,
        "owner": run.lease_owner,
        "host_id": run.host_id,
        "status": end.status,
        "started_at": run.started_at,
        "finished_at": now,
        "error_code": end.error_code,
        "error": end.error,
        "result": end.result,
        "log_ref": end.log_ref,
        "retry_at": one.decided.retry_at,
    }


def _moves(one: EndedRun, actor: str, now: datetime) -> Iterator[dict[str, object]]:
    move = {"machine": JOB_RUN.name, "entity_id": str(one.run.id), "actor": actor, "at": now}
    yield {**move, "from_state": one.was, "to_state": one.end.status, "reason": one.end.error}
    if not one.is_final:
        at = iso(one.decided.retry_at) if one.decided.retry_at else ""
        reason = f"Attempt {one.attempt_no + 1} of {one.run.max_attempts} at {at}"
        state = one.decided.state
        yield {**move, "from_state": one.end.status, "to_state": state, "reason": reason}


def _event(one: EndedRun, now: datetime) -> Event:
    run, name = one.run, _EVENT_NAMES[one.end.status]
    payload: dict[str, object] = {
        "jobId": str(run.job_id),
        "scheduleId": run.schedule_id,
        "type": one.job.type,
        "errorCode": one.end.error_code,
        "error": one.end.error,
    }
    if one.decided.retry_at is not None:
        name, payload["retryAt"] = "retry_scheduled", iso(one.decided.retry_at)
    return run_event(run.org_id, run.id, one.attempt_no, name, now, payload)


def record_outcomes(session: Session, ended: Sequence[EndedRun], now: datetime) -> None:
    """Count final ends for their schedules. A cancelled job is neither a success nor a failure, and
    neither is a job that failed while it was being cancelled."""
    ids = {one.job.schedule_id for one in ended if one.job.schedule_id is not None}
    if not ids:
        return
    rows = session.scalars(
        select(OrgScheduleRow)
        .where(among(session, OrgScheduleRow.id, ids))
        .order_by(OrgScheduleRow.id)
        .with_for_update()
        .execution_options(**FRESH)
    )
    schedules = {row.id: row for row in rows}
    for one in ended:
        row = schedules.get(one.job.schedule_id or "")
        if row is None:
            continue
        if row.last_run_job_id == one.job.id:
            row.last_job_status = one.end.status
        if one.end.status is OrgJobsRunState.SUCCESS:
            row.consecutive_failures = 0
        elif one.end.status is OrgJobsRunState.FAILED and one.run.cancel_requested_at is None:
            record_failure(session, row, now)


def record_failure(session: Session, row: OrgScheduleRow, now: datetime) -> None:
    """Count a failure of a locked schedule; too many consecutive failures pause it."""
    row.failure_count += 1
    row.consecutive_failures += 1
    is_too_many = 0 < row.auto_pause_after <= row.consecutive_failures
    if is_too_many and row.state == ScheduleState.ACTIVE and row.deleted_at is None:
        from automation_pipeline.org_jobs.queries.schedules import move_schedule  # noqa: PLC0415  workers seldom need it

        reason = f"{row.consecutive_failures} failures in a row"
        row.enabled, row.pause_reason = False, reason
        move_schedule(session, row, ScheduleState.PAUSED, actor=SCHEDULER, now=now, reason=reason)
        payload = {"consecutiveFailures": row.consecutive_failures}
        event = schedule_event(row.org_id, row.id, "auto_paused", str(row.version), now, payload)
        enqueue(session, [event])


def _close_batches(session: Session, batch_ids: Collection[int], now: datetime) -> None:
    if not batch_ids:
        return
    of_batch = select(OrgJobRow.id).where(OrgJobRow.batch_id == BatchRow.id)
    is_left = exists(of_batch.where(OrgJobRow.status.in_(ACTIVE_RUN_STATES)))
    failures = OrgJobsRunState.FAILED, OrgJobsRunState.CANCELLED
    has_failures = exists(of_batch.where(OrgJobRow.status.in_(failures)))
    status = case((has_failures, BatchState.COMPLETED_WITH_FAILURES), else_=BatchState.COMPLETED)
    is_running = BatchRow.status == BatchState.RUNNING
    session.execute(
        update(BatchRow)
        .where(among(session, BatchRow.id, batch_ids), is_running, ~is_left)
        .values(status=status, finished_at=now)
        .execution_options(**UNSYNCHRONIZED)
    )


def followed_runs(session: Session, after_id: int, limit: int) -> list[FollowedRun]:
    """A page of followed runs of all organisations, in the order of their ids."""
    fresh = (
        select(Run, OrgJobRow)
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .where(IS_RUNNING, Run.following.is_not(None), Run.id > after_id)
        .order_by(Run.id)
        .limit(limit)
        .execution_options(**FRESH)
    )
    return list(session.execute(fresh).tuples())


def lock_followed_runs(session: Session, followed: Sequence[JobRunRow]) -> set[int]:
    """Lock the runs that are still followed in the same way. The caller may end them in this transaction."""
    before = {run.id: run.following for run in followed}
    _lock_schedules_of(session, before)
    rows = session.scalars(
        select(Run)
        .where(among(session, Run.id, before), IS_RUNNING)
        .order_by(Run.id)
        .with_for_update()
        .execution_options(**FRESH)
    )
    return {run.id for run in rows if run.following == before[run.id]}


def abandoned_runs(
    session: Session, silence_limits: Mapping[Performer, float], now: datetime, limit: int
) -> dict[int, AttemptEnd]:
    """The ends of the runs whose worker or agent was silent for longer than `silence_limits`, that
    take too long, or that did not start in time. Locked runs are checked again, because a heartbeat
    may have come before the lock."""
    is_silent = Run.lease_until <= database_now()
    is_late = and_(Run.deadline_at <= now, Run.following.is_(None))
    is_overdue = exists().where(OrgJobRow.id == Run.job_id, OrgJobRow.expires_at <= now)
    running = _first(session, limit, IS_RUNNING, or_(is_silent, is_late))
    waiting = _first(
        session, limit, IS_PENDING, RUNS.is_free(), is_overdue, has_open_organisation(now)
    )
    found = sorted({*running, *waiting})[:limit]
    if not found:
        return {}
    _lock_schedules_of(session, found)
    query = select(Run, OrgJobRow).join(OrgJobRow, OrgJobRow.id == Run.job_id)
    rows = session.execute(_locked(query.where(among(session, Run.id, found)))).tuples().all()
    present = database_time(session)
    ends = {run.id: _end_of_abandoned(run, job, silence_limits, present, now) for run, job in rows}
    return {run_id: end for run_id, end in ends.items() if end is not None}


def _first(session: Session, limit: int, *conditions: ColumnElement[bool]) -> Sequence[int]:
    return session.scalars(select(Run.id).where(*conditions).order_by(Run.id).limit(limit)).all()


def _end_of_abandoned(
    run: JobRunRow,
    job: OrgJobRow,
    silence_limits: Mapping[Performer, float],
    present: datetime,
    now: datetime,
) -> AttemptEnd | None:
    until, performer = run.lease_until, Performer(run.performer)
    is_silent = until is not None and until <= present
    overdue = 0.0 if until is None else (present - until).total_seconds()
    return end_of_unattended(
        now,
        status=OrgJobsRunState(run.status),
        performer=performer,
        is_cancel_wanted=run.cancel_requested_at is not None,
        cancel_reason=run.cancel_reason,
        silent_seconds=overdue + silence_limits[performer] if is_silent else None,
        is_held=until is not None and not is_silent,
        is_followed=run.following is not None,
        started_at=run.started_at,
        deadline_at=run.deadline_at,
        expires_at=job.expires_at,
    )


def release_unstarted(session: Session, limit: int) -> Sequence[int]:
    """Release runs that were claimed and never started. Their attempt does not count."""
    is_lost = IS_PENDING, Run.lease_until <= database_now()
    run_ids = session.scalars(
        select(Run.id)
        .where(*is_lost)
        .order_by(Run.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    ).all()
    if run_ids:
        session.execute(
            update(Run)
            .where(among(session, Run.id, run_ids), *is_lost)
            .values(lease_owner=None, lease_until=None, requested_at=None)
            .execution_options(**UNSYNCHRONIZED)
        )
    return run_ids
