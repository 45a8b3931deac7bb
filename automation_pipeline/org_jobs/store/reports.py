"""What agents report of attempts: who has ended those before, and what was said too late, which is kept beside them."""

from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.core.instants import iso
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.domain.agent_job import Orders, ProgressReport, ResultReport, is_agent
from automation_pipeline.org_jobs.domain.agent_report import PastAttempt
from automation_pipeline.org_jobs.domain.states import JOB_RUN, RunState
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.tables import AttemptRow, JobRunRow
from automation_pipeline.storage.transitions import TransitionRow

LATE_REPORT = "late_report"


def write_progress(run: JobRunRow, report: ProgressReport, now: datetime) -> None:
    """Of a run that is locked. What is not said this time stays as it was said before."""
    said = {"percent": report.percent, "message": report.message}
    run.progress = {**(run.progress or {}), **{name: value for name, value in said.items() if value is not None}}
    run.progress_at = now


def orders_of(run: JobRunRow) -> Orders:
    """Of a run that somebody holds."""
    assert run.lease_until is not None  # noqa: S101  whoever holds a run has a lease
    return Orders(
        cancel_requested=run.cancel_requested_at is not None,
        lease_expires_at=run.lease_until,
        deadline_at=run.deadline_at,
    )


def past_attempt(session: Session, run: JobRunRow, attempt_no: int) -> PastAttempt | None:
    """None: no such attempt has begun and ended."""
    row = _attempt(session, run, attempt_no)
    if row is None:
        return None
    return PastAttempt(RunState(row.status), row.error_code, was_reported=is_agent(_ended_by(session, row)))


def keep_late_report(session: Session, run: JobRunRow, report: ResultReport, *, actor: str, now: datetime) -> None:
    """The first one of an attempt; what is said after that adds nothing."""
    row = _attempt(session, run, report.attempt_no)
    if row is None or row.late_report is not None:
        return
    row.late_report = {**as_document(report), "at": iso(now), "actor": actor}
    said = {"runId": str(run.id), "attemptNo": report.attempt_no, "status": report.status.value}
    note(
        session,
        org_id=run.org_id,
        actor=actor,
        action=LATE_REPORT,
        entity="job",
        entity_id=str(run.job_id),
        before={"status": row.status, "errorCode": row.error_code},
        after=said,
        reason="Its attempt had been given up by then.",
        now=now,
    )


def _attempt(session: Session, run: JobRunRow, attempt_no: int) -> AttemptRow | None:
    return session.scalar(
        select(AttemptRow).where(
            AttemptRow.run_id == run.id, AttemptRow.org_id == run.org_id, AttemptRow.attempt_no == attempt_no
        )
    )


def _ended_by(session: Session, attempt: AttemptRow) -> str:
    """Every attempt that is kept has left the state running once, so both are in the same order."""
    before = select(func.count(AttemptRow.id)).where(
        AttemptRow.run_id == attempt.run_id, AttemptRow.attempt_no < attempt.attempt_no
    )
    ended = select(TransitionRow.actor).where(
        TransitionRow.machine == JOB_RUN.name,
        TransitionRow.entity_id == str(attempt.run_id),
        TransitionRow.from_state == RunState.RUNNING,
    )
    return session.scalar(ended.order_by(TransitionRow.id).offset(session.scalar(before) or 0).limit(1)) or ""
