"""What the holder of an attempt may do with its run: begin it, keep it, and look whether it is still its own."""

from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import ConflictError, NotFoundError, TransientError
from automation_pipeline.org_jobs.domain.events import run_event
from automation_pipeline.org_jobs.domain.states import JOB_RUN, RunState
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.claims import Hold
from automation_pipeline.org_jobs.store.endings import lock_schedules_of
from automation_pipeline.org_jobs.tables import JobRow, JobRunRow
from automation_pipeline.storage.instants import database_now, database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.transitions import Transition, record_transitions


class LostLeaseError(ConflictError):
    """The attempt was ended or given to somebody else: whatever its holder did is not wanted any more."""


class RunBusyError(TransientError):
    """Somebody else works on the run."""


def locked_run(session: Session, run_id: int, within: Within) -> JobRunRow:
    """Nobody else's until the transaction ends. Whoever may end its attempt calls `lock_schedules_of` first."""
    query = select(JobRunRow).where(JobRunRow.id == run_id)
    if within.org_id is not None:
        query = query.where(JobRunRow.org_id == within.org_id)
    row = session.scalar(query.with_for_update().execution_options(populate_existing=True))
    if row is None:
        raise no_such_run(run_id)
    return row


def held_run(session: Session, hold: Hold, within: Within, *, to_end: bool = False) -> JobRunRow:
    """LostLeaseError: it is not this holder's any more. One that runs is its holder's until somebody gives it up, even
    if its lease is over: nobody else takes it before. `to_end`: its attempt may be ended in this transaction."""
    if to_end:
        lock_schedules_of(session, [hold.run_id])
    row = locked_run(session, hold.run_id, within)
    if not _is_held(session, row, hold):
        raise LostLeaseError(f"Attempt {hold.attempt_no} of job run {hold.run_id} is not yours any more.")
    return row


def begin_run(
    session: Session, hold: Hold, deadline_at: datetime, now: datetime, *, within: Within, actor: str
) -> JobRunRow:
    """From pending to running, once an attempt; of one that runs already, nothing. LostLeaseError as `held_run`."""
    row = held_run(session, hold, within)
    if row.status == RunState.RUNNING:
        return row
    row.status = JOB_RUN.move(RunState(row.status), RunState.RUNNING)
    row.started_at, row.deadline_at = now, deadline_at
    row.error = row.error_code = row.result = row.log_ref = None
    session.flush()
    session.execute(
        update(JobRow)
        .where(JobRow.id == row.job_id, JobRow.org_id == row.org_id)
        .values(status=RunState.RUNNING)
        .execution_options(synchronize_session=False)
    )
    moved = Transition(JOB_RUN.name, str(row.id), RunState.PENDING, RunState.RUNNING, actor, now)
    record_transitions(session, [moved])
    told = {"jobId": str(row.job_id), "scheduleId": row.schedule_id}
    enqueue(session, [run_event(row.org_id, row.id, row.attempt_no, "started", now, told)])
    return row


def extend(session: Session, hold: Hold, seconds: float, within: Within) -> JobRunRow:
    """For so long from now on. The row knows its new `lease_until`."""
    row = held_run(session, hold, within)
    row.lease_until = session.scalars(select(database_now(seconds))).one()
    session.flush()
    return row


def check_nobody_has(session: Session, run_id: int) -> None:
    """RunBusyError: somebody has begun it, and is heard of."""
    query = select(JobRunRow.lease_until).where(JobRunRow.id == run_id, JobRunRow.status == RunState.RUNNING)
    until = session.scalar(query)
    left = 0.0 if until is None else (until - database_time(session)).total_seconds()
    if left > 0:
        raise RunBusyError(f"Job run {run_id} is being worked on.", retry_after_seconds=left + 1)


def no_such_run(run_id: int) -> NotFoundError:
    return NotFoundError(f"Job run {run_id} does not exist.")


def _is_held(session: Session, row: JobRunRow, hold: Hold) -> bool:
    if (row.attempt_no, row.lease_token) != (hold.attempt_no, hold.token) or row.lease_until is None:
        return False
    return row.status == RunState.RUNNING or (
        row.status == RunState.PENDING and row.lease_until > database_time(session)
    )
