"""The one place where attempts end: runs, their jobs, schedules and batches, the log and the events, all together."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from automation_pipeline.core.events import Event
from automation_pipeline.core.instants import iso
from automation_pipeline.org_jobs.domain.endings import AttemptEnd, RunEnd, run_end
from automation_pipeline.org_jobs.domain.events import run_event
from automation_pipeline.org_jobs.domain.expiry import expires_at
from automation_pipeline.org_jobs.domain.retry_policy import stored_policy
from automation_pipeline.org_jobs.domain.states import ACTIVE_RUN_STATES, JOB_RUN, RunState
from automation_pipeline.org_jobs.store.batches import close_batches
from automation_pipeline.org_jobs.store.outcomes import JobOutcome, tell_schedules
from automation_pipeline.org_jobs.store.start_windows import window_of
from automation_pipeline.org_jobs.tables import AttemptRow, JobRow, JobRunRow, ScheduleRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.transitions import TransitionRow

_EVENT_NAMES = {RunState.SUCCESS: "succeeded", RunState.FAILED: "failed", RunState.CANCELLED: "cancelled"}


@dataclass(frozen=True)
class EndedRun:
    run: JobRunRow
    job: JobRow
    end: AttemptEnd
    decided: RunEnd
    attempt_no: int
    was: RunState

    @property
    def is_final(self) -> bool:
        return self.decided.state is not RunState.PENDING


def end_attempts(
    session: Session, ends: Mapping[int, AttemptEnd], actor: str, now: datetime, random: Random | None = None
) -> list[EndedRun]:
    """By run. Those that have ended meanwhile are left out; whether whoever ends them may is for the caller to see,
    who has locked them in this transaction, or locks nothing of them before."""
    if not ends:
        return []
    lock_schedules_of(session, ends)
    ended = [_ended(run, job, ends[run.id], now, random or Random()) for run, job in _locked(session, ends)]
    for one in ended:
        _write(one, now)
    _log(session, ended, actor, now)
    final = [one for one in ended if one.is_final]
    tell_schedules(session, [_outcome(one) for one in final], now)
    enqueue(session, [_event(one, now) for one in ended])
    session.flush()
    close_batches(session, {one.job.batch_id for one in final if one.job.batch_id is not None}, now)
    return ended


def lock_schedules_of(session: Session, run_ids: Collection[int]) -> None:
    """Schedules are locked before runs, here and by the dispatcher, so that nobody waits crosswise."""
    of_runs = select(JobRunRow.schedule_id).where(among(session, JobRunRow.id, run_ids))
    session.execute(
        select(ScheduleRow.id).where(ScheduleRow.id.in_(of_runs)).order_by(ScheduleRow.id).with_for_update()
    )


def _locked(session: Session, run_ids: Collection[int]) -> Sequence[tuple[JobRunRow, JobRow]]:
    query = (
        select(JobRunRow, JobRow)
        .join(JobRow, JobRow.id == JobRunRow.job_id)
        .where(among(session, JobRunRow.id, run_ids), JobRunRow.status.in_(ACTIVE_RUN_STATES))
        .order_by(JobRunRow.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    return [(run, job) for run, job in session.execute(query).tuples()]


def _ended(run: JobRunRow, job: JobRow, end: AttemptEnd, now: datetime, random: Random) -> EndedRun:
    decided = run_end(
        end,
        frm=RunState(run.status),
        attempt_no=run.attempt_no,
        policy=stored_policy(job.retry_policy),
        window=window_of(job.start_window),
        is_cancel_wanted=run.cancel_requested_at is not None,
        now=now,
        random=random,
    )
    return EndedRun(run, job, end, decided, run.attempt_no, RunState(run.status))


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
        one.job.expires_at = expires_at(one.decided.retry_at or now, has_window=one.job.start_window is not None)


def _log(session: Session, ended: Sequence[EndedRun], actor: str, now: datetime) -> None:
    attempts = [_attempt(one, now) for one in ended if one.was is RunState.RUNNING]
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
    return JobOutcome(one.job.schedule_id, one.job.id, one.end.status, is_cancel_wanted=is_cancel_wanted)
