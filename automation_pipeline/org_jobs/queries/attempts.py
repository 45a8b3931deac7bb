"""Attempts at runs: begin, keep, follow, end and repeat them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random

from sqlalchemy import ColumnElement, and_, case, exists, insert, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, NotFoundError, TransientError
from automation_pipeline.core.events import Event
from automation_pipeline.org_jobs.events import run_event, schedule_event
from automation_pipeline.org_jobs.models.jobs import (
    AttemptEnd,
    Performer,
    RunEnd,
    run_end,
    stored_policy,
)
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.models.states import (
    ACTIVE_RUN_STATES,
    JOB_RUN,
    BatchState,
    OrgJobsRunState,
    ScheduleState,
)
from automation_pipeline.org_jobs.queries.jobs import no_such_job, run_columns, window_of
from automation_pipeline.org_jobs.queries.queue import AttemptHold, is_free, is_of_open
from automation_pipeline.org_jobs.queries.schedules import move_schedule
from automation_pipeline.org_jobs.rules.attempts import UnattendedRun, end_of_unattended, expires_at
from automation_pipeline.org_jobs.tables import (
    AttemptRow,
    BatchRow,
    JobRunRow,
    OrgJobRow,
    OrgScheduleRow,
)
from automation_pipeline.storage.clock import database_now, database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import among
from automation_pipeline.storage.transitions import Transition, TransitionRow, record_transitions
from automation_pipeline.storage.types import JsonObject


def close_batches(session: Session, batch_ids: Collection[int], now: datetime) -> None:
    """Those of which no job is left to be done."""
    if not batch_ids:
        return
    of_batch = select(OrgJobRow.id).where(OrgJobRow.batch_id == BatchRow.id)
    left = exists(of_batch.where(OrgJobRow.status.in_(ACTIVE_RUN_STATES)))
    spoilt = exists(
        of_batch.where(OrgJobRow.status.in_((OrgJobsRunState.FAILED, OrgJobsRunState.CANCELLED)))
    )
    verdict = case((spoilt, BatchState.COMPLETED_WITH_FAILURES), else_=BatchState.COMPLETED)
    session.execute(
        update(BatchRow)
        .where(among(session, BatchRow.id, batch_ids), BatchRow.status == BatchState.RUNNING, ~left)
        .values(status=verdict, finished_at=now)
        .execution_options(synchronize_session=False)
    )


SCHEDULER = "scheduler"


@dataclass(frozen=True)
class JobOutcome:
    """`status` is one of those in which a run has ended for good, whether or not somebody wanted it
    cancelled."""

    schedule_id: str | None
    job_id: int
    status: OrgJobsRunState
    is_cancel_wanted: bool = False


def record_outcomes(session: Session, outcomes: Sequence[JobOutcome], now: datetime) -> None:
    """Each is told once. A job that was cancelled is neither a success nor a failure, and one that
    failed while it was to be stopped did so for a reason that is not the schedule's."""
    ids = {one.schedule_id for one in outcomes if one.schedule_id is not None}
    if not ids:
        return
    query = (
        select(OrgScheduleRow)
        .where(among(session, OrgScheduleRow.id, ids))
        .order_by(OrgScheduleRow.id)
        .with_for_update()
    )
    rows = {row.id: row for row in session.scalars(query.execution_options(populate_existing=True))}
    for one in outcomes:
        row = rows.get(one.schedule_id or "")
        if row is None:
            continue
        if row.last_run_job_id == one.job_id:
            row.last_job_status = one.status
        if one.status is OrgJobsRunState.SUCCESS:
            row.consecutive_failures = 0
        elif one.status is OrgJobsRunState.FAILED and not one.is_cancel_wanted:
            record_failure(session, row, now)


def record_failure(session: Session, row: OrgScheduleRow, now: datetime) -> None:
    """Of a schedule that is locked: counted once, and too many in a row pause it."""
    row.failure_count += 1
    row.consecutive_failures += 1
    is_too_many = 0 < row.auto_pause_after <= row.consecutive_failures
    if is_too_many and row.state == ScheduleState.ACTIVE and row.deleted_at is None:
        reason = f"{row.consecutive_failures} failures in a row"
        row.enabled, row.pause_reason = False, reason
        move_schedule(session, row, ScheduleState.PAUSED, actor=SCHEDULER, now=now, reason=reason)
        payload = {"consecutiveFailures": row.consecutive_failures}
        enqueue(
            session,
            [schedule_event(row.org_id, row.id, "auto_paused", str(row.version), now, payload)],
        )


_EVENT_NAMES = {
    OrgJobsRunState.SUCCESS: "succeeded",
    OrgJobsRunState.FAILED: "failed",
    OrgJobsRunState.CANCELLED: "cancelled",
}


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
    """By run. Those that have ended meanwhile are left out; whether whoever ends them may is for
    the caller to see, who has locked them in this transaction, or locks nothing of them before."""
    if not ends:
        return []
    lock_schedules_of(session, ends)
    ended = [
        _ended(run, job, ends[run.id], now, random or Random())
        for run, job in _locked(session, ends)
    ]
    for one in ended:
        _write(one, now)
    _log(session, ended, actor, now)
    final = [one for one in ended if one.is_final]
    record_outcomes(session, [_outcome(one) for one in final], now)
    enqueue(session, [_event(one, now) for one in ended])
    session.flush()
    close_batches(session, {one.job.batch_id for one in final if one.job.batch_id is not None}, now)
    return ended


def lock_schedules_of(session: Session, run_ids: Collection[int]) -> None:
    """Schedules are locked before runs, here and by the dispatcher, so that nobody waits
    crosswise."""
    of_runs = select(JobRunRow.schedule_id).where(among(session, JobRunRow.id, run_ids))
    session.execute(
        select(OrgScheduleRow.id)
        .where(OrgScheduleRow.id.in_(of_runs))
        .order_by(OrgScheduleRow.id)
        .with_for_update()
    )


def _locked(session: Session, run_ids: Collection[int]) -> Sequence[tuple[JobRunRow, OrgJobRow]]:
    query = (
        select(JobRunRow, OrgJobRow)
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .where(among(session, JobRunRow.id, run_ids), JobRunRow.status.in_(ACTIVE_RUN_STATES))
        .order_by(JobRunRow.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    return [(run, job) for run, job in session.execute(query).tuples()]


def _ended(
    run: JobRunRow, job: OrgJobRow, end: AttemptEnd, now: datetime, random: Random
) -> EndedRun:
    decided = run_end(
        end,
        frm=OrgJobsRunState(run.status),
        attempt_no=run.attempt_no,
        policy=stored_policy(job.retry_policy),
        window=window_of(job.start_window),
        is_cancel_wanted=run.cancel_requested_at is not None,
        now=now,
        random=random,
    )
    return EndedRun(run, job, end, decided, run.attempt_no, OrgJobsRunState(run.status))


def _write(one: EndedRun, now: datetime) -> None:
    run, end = one.run, one.end
    run.status = one.job.status = one.decided.state
    run.result, run.log_ref = end.result, end.log_ref
    run.error_code, run.error = end.error_code, end.error
    run.lease_until = run.deadline_at = run.following = run.requested_at = None
    run.next_attempt_at = one.decided.retry_at
    if one.is_final:
        run.finished_at = one.job.finished_at = now
    else:
        run.attempt_no, run.progress, run.progress_at = one.attempt_no + 1, None, None
        one.job.expires_at = expires_at(
            one.decided.retry_at or now, has_window=one.job.start_window is not None
        )


def _log(session: Session, ended: Sequence[EndedRun], actor: str, now: datetime) -> None:
    attempts = [_attempt(one, now) for one in ended if one.was is OrgJobsRunState.RUNNING]
    if attempts:
        session.execute(insert(AttemptRow), attempts)
    moves = [move for one in ended for move in _moves(one, actor, now)]
    if moves:
        session.execute(insert(TransitionRow), moves)


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
    said = {"machine": JOB_RUN.name, "entity_id": str(one.run.id), "actor": actor, "at": now}
    yield {**said, "from_state": one.was, "to_state": one.end.status, "reason": one.end.error}
    if not one.is_final:
        at = iso(one.decided.retry_at) if one.decided.retry_at else ""
        why = f"Attempt {one.attempt_no + 1} of {one.run.max_attempts} at {at}"
        yield {**said, "from_state": one.end.status, "to_state": one.decided.state, "reason": why}


def _event(one: EndedRun, now: datetime) -> Event:
    run = one.run
    payload: dict[str, object] = {
        "jobId": str(run.job_id),
        "scheduleId": run.schedule_id,
        "type": one.job.type,
        "errorCode": one.end.error_code,
        "error": one.end.error,
    }
    if one.decided.retry_at is not None:
        again = {**payload, "retryAt": iso(one.decided.retry_at)}
        return run_event(run.org_id, run.id, one.attempt_no, "retry_scheduled", now, again)
    return run_event(run.org_id, run.id, one.attempt_no, _EVENT_NAMES[one.end.status], now, payload)


def _outcome(one: EndedRun) -> JobOutcome:
    is_cancel_wanted = one.run.cancel_requested_at is not None
    return JobOutcome(
        one.job.schedule_id, one.job.id, one.end.status, is_cancel_wanted=is_cancel_wanted
    )


Run = JobRunRow


@dataclass(frozen=True, kw_only=True)
class FollowedRun:
    id: int
    type: str
    following: JsonObject
    started_at: datetime
    deadline_at: datetime | None
    cancelled_by: str | None
    cancel_reason: str | None
    is_cancel_wanted: bool

    def is_late(self, now: datetime) -> bool:
        return self.deadline_at is not None and self.deadline_at <= now

    @property
    def limit_seconds(self) -> float:
        return (
            0.0
            if self.deadline_at is None
            else (self.deadline_at - self.started_at).total_seconds()
        )


def followed_runs(session: Session, after_id: int, limit: int) -> list[FollowedRun]:
    """Those of organisations everywhere, in the order of ids, a page at a time."""
    query = (
        select(Run, OrgJobRow.type)
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .where(Run.status == OrgJobsRunState.RUNNING, Run.following.is_not(None), Run.id > after_id)
        .order_by(Run.id)
        .limit(limit)
        .execution_options(populate_existing=True)
    )
    return [_followed(run, type_) for run, type_ in session.execute(query).tuples()]


def lock_followed_runs(session: Session, followed: Mapping[int, JsonObject]) -> set[int]:
    """Those that are still followed in the same way; they stay so until the transaction ends, and
    may be ended."""
    lock_schedules_of(session, followed)
    query = (
        select(Run)
        .where(among(session, Run.id, followed), Run.status == OrgJobsRunState.RUNNING)
        .order_by(Run.id)
    )
    rows = session.scalars(query.with_for_update().execution_options(populate_existing=True))
    return {
        run.id
        for run in rows
        if run.following is not None and dict(run.following) == dict(followed[run.id])
    }


def _followed(run: JobRunRow, type_: str) -> FollowedRun:
    assert run.following is not None  # noqa: S101  only such are chosen
    assert run.started_at is not None  # noqa: S101  a running one has begun
    return FollowedRun(
        id=run.id,
        type=type_,
        following=run.following,
        started_at=run.started_at,
        deadline_at=run.deadline_at,
        cancelled_by=run.cancelled_by,
        cancel_reason=run.cancel_reason,
        is_cancel_wanted=run.cancel_requested_at is not None,
    )


# How long each may be silent.
SilenceLimits = Mapping[Performer, float]


def abandoned_runs(
    session: Session, patience: SilenceLimits, now: datetime, limit: int
) -> dict[int, AttemptEnd]:
    """How they end. Whoever was heard of at the last moment keeps what it has: they are looked at
    again once they are held."""
    found = sorted({*_silent_or_late(session, now, limit), *_never_begun(session, now, limit)})[
        :limit
    ]
    if not found:
        return {}
    lock_schedules_of(session, found)
    query = (
        select(Run, OrgJobRow.expires_at)
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .where(among(session, Run.id, found))
        .order_by(Run.id)
        .with_for_update(of=Run)
        .execution_options(populate_existing=True)
    )
    rows = session.execute(query).tuples().all()
    present = database_time(session)
    ends = {
        run.id: end_of_unattended(_standing(run, until, patience, present), now)
        for run, until in rows
    }
    return {run_id: end for run_id, end in ends.items() if end is not None}


def release_unstarted(session: Session, limit: int) -> Sequence[int]:
    """Runs that were taken and never begun: the attempt is still to be made, by whoever takes it
    next."""
    is_lost = Run.status == OrgJobsRunState.PENDING, Run.lease_until <= database_now()
    held = (
        select(Run.id)
        .where(*is_lost)
        .order_by(Run.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    run_ids = session.scalars(held).all()
    if run_ids:
        session.execute(
            update(Run)
            .where(among(session, Run.id, run_ids), *is_lost)
            .values(lease_owner=None, lease_until=None, requested_at=None)
            .execution_options(synchronize_session=False)
        )
    return run_ids


def _silent_or_late(session: Session, now: datetime, limit: int) -> Sequence[int]:
    is_late = and_(Run.deadline_at <= now, Run.following.is_(None))
    running = Run.status == OrgJobsRunState.RUNNING, or_(Run.lease_until <= database_now(), is_late)
    return _first(session, running, limit)


def _never_begun(session: Session, now: datetime, limit: int) -> Sequence[int]:
    is_overdue = exists().where(OrgJobRow.id == Run.job_id, OrgJobRow.expires_at <= now)
    return _first(
        session,
        (Run.status == OrgJobsRunState.PENDING, is_free(), is_overdue, is_of_open(now)),
        limit,
    )


def _first(
    session: Session, conditions: Sequence[ColumnElement[bool]], limit: int
) -> Sequence[int]:
    return session.scalars(select(Run.id).where(*conditions).order_by(Run.id).limit(limit)).all()


def _standing(
    run: JobRunRow, expires_at: datetime | None, patience: SilenceLimits, present: datetime
) -> UnattendedRun:
    until = run.lease_until
    overdue = None if until is None or until > present else (present - until).total_seconds()
    return UnattendedRun(
        status=OrgJobsRunState(run.status),
        performer=Performer(run.performer),
        is_cancel_wanted=run.cancel_requested_at is not None,
        cancel_reason=run.cancel_reason,
        silent_seconds=None if overdue is None else overdue + patience[Performer(run.performer)],
        is_held=until is not None and overdue is None,
        is_followed=run.following is not None,
        started_at=run.started_at,
        deadline_at=run.deadline_at,
        expires_at=expires_at,
    )


class LostLeaseError(ConflictError):
    """The attempt was ended or given to somebody else: whatever its holder did is not wanted any
    more."""


class JobRunBusyError(TransientError):
    """Somebody else works on the run."""


def locked_run(session: Session, run_id: int, within: OrgScope) -> JobRunRow:
    """Nobody else's until the transaction ends. Whoever may end its attempt calls
    `lock_schedules_of` first."""
    query = select(JobRunRow).where(JobRunRow.id == run_id)
    if within.org_id is not None:
        query = query.where(JobRunRow.org_id == within.org_id)
    row = session.scalar(query.with_for_update().execution_options(populate_existing=True))
    if row is None:
        raise no_such_run(run_id)
    return row


def held_run(
    session: Session, hold: AttemptHold, within: OrgScope, *, to_end: bool = False
) -> JobRunRow:
    """LostLeaseError: it is not this holder's any more. One that runs is its holder's until
    somebody gives it up, even if its lease is over: nobody else takes it before. `to_end`: its
    attempt may be ended in this transaction."""
    if to_end:
        lock_schedules_of(session, [hold.run_id])
    row = locked_run(session, hold.run_id, within)
    if not _is_held(session, row, hold):
        raise LostLeaseError(
            f"Attempt {hold.attempt_no} of job run {hold.run_id} is not yours any more."
        )
    return row


def begin_run(
    session: Session,
    hold: AttemptHold,
    deadline_at: datetime,
    now: datetime,
    *,
    within: OrgScope,
    actor: str,
) -> JobRunRow:
    """From pending to running, once an attempt; of one that runs already, nothing. LostLeaseError
    as `held_run`."""
    row = held_run(session, hold, within)
    if row.status == OrgJobsRunState.RUNNING:
        return row
    row.status = JOB_RUN.move(OrgJobsRunState(row.status), OrgJobsRunState.RUNNING)
    row.started_at, row.deadline_at = now, deadline_at
    row.error = row.error_code = row.result = row.log_ref = None
    session.flush()
    session.execute(
        update(OrgJobRow)
        .where(OrgJobRow.id == row.job_id, OrgJobRow.org_id == row.org_id)
        .values(status=OrgJobsRunState.RUNNING)
        .execution_options(synchronize_session=False)
    )
    moved = Transition(
        JOB_RUN.name, str(row.id), OrgJobsRunState.PENDING, OrgJobsRunState.RUNNING, actor, now
    )
    record_transitions(session, [moved])
    told = {"jobId": str(row.job_id), "scheduleId": row.schedule_id}
    enqueue(session, [run_event(row.org_id, row.id, row.attempt_no, "started", now, told)])
    return row


def extend_lease(
    session: Session, hold: AttemptHold, seconds: float, within: OrgScope
) -> JobRunRow:
    """For so long from now on. The row knows its new `lease_until`."""
    row = held_run(session, hold, within)
    row.lease_until = session.scalars(select(database_now(seconds))).one()
    session.flush()
    return row


def check_unclaimed(session: Session, run_id: int) -> None:
    """RunBusyError: somebody has begun it, and is heard of."""
    query = select(JobRunRow.lease_until).where(
        JobRunRow.id == run_id, JobRunRow.status == OrgJobsRunState.RUNNING
    )
    until = session.scalar(query)
    left = 0.0 if until is None else (until - database_time(session)).total_seconds()
    if left > 0:
        raise JobRunBusyError(f"Job run {run_id} is being worked on.", retry_after_seconds=left + 1)


def no_such_run(run_id: int) -> NotFoundError:
    return NotFoundError(f"Job run {run_id} not found")


def _is_held(session: Session, row: JobRunRow, hold: AttemptHold) -> bool:
    if (row.attempt_no, row.lease_token) != (
        hold.attempt_no,
        hold.token,
    ) or row.lease_until is None:
        return False
    return row.status == OrgJobsRunState.RUNNING or (
        row.status == OrgJobsRunState.PENDING and row.lease_until > database_time(session)
    )


def newest_run(session: Session, job_id: int, within: OrgScope) -> JobRunRow:
    """Held, with its schedule, so that it may be ended or followed by another. NotFoundError: there
    is no such job."""
    run_id = _newest_id(session, job_id, within)
    while True:
        lock_schedules_of(session, [run_id])
        run = locked_run(session, run_id, within)
        newest_id = _newest_id(session, job_id, within)
        if newest_id == run_id:
            return run
        run_id = newest_id


def add_run(session: Session, run: JobRunRow, actor: str, now: datetime) -> None:
    """After one that has ended, and is held. The batch of the job is at work again."""
    its = OrgJobRow.id == run.job_id, OrgJobRow.org_id == run.org_id
    job = session.scalars(select(OrgJobRow).where(*its)).one()
    again = JobRunRow(**run_columns(job, actor, now, like=run))
    session.add(again)
    job.status, job.finished_at = again.status, None
    job.expires_at = expires_at(now, has_window=job.start_window is not None)
    session.flush()
    if job.batch_id is not None:
        session.execute(
            update(BatchRow)
            .where(BatchRow.id == job.batch_id, BatchRow.org_id == run.org_id)
            .values(status=BatchState.RUNNING, finished_at=None)
            .execution_options(synchronize_session=False)
        )


def _newest_id(session: Session, job_id: int, within: OrgScope) -> int:
    query = (
        select(JobRunRow.id)
        .where(JobRunRow.job_id == job_id)
        .order_by(JobRunRow.id.desc())
        .limit(1)
    )
    if within.org_id is not None:
        query = query.where(JobRunRow.org_id == within.org_id)
    run_id = session.scalar(query)
    if run_id is None:
        raise no_such_job(job_id)
    return run_id
