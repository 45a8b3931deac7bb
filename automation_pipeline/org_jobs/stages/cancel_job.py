"""Stop a job: what nobody has begun is cancelled at once, whoever is at work on it is asked to stop."""

from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.org_jobs.domain.endings import cancelled
from automation_pipeline.org_jobs.domain.org_job import OrgJob
from automation_pipeline.org_jobs.domain.states import ENDED_RUN_STATES, RunState
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.endings import end_attempts
from automation_pipeline.org_jobs.store.job_views import get_job
from automation_pipeline.org_jobs.store.retried_jobs import newest_run
from automation_pipeline.org_jobs.tables import JobRunRow
from automation_pipeline.storage.database import Database, Session


def cancel_job(  # noqa: PLR0913  the collaborators by name, and who wants what
    job_id: int,
    *,
    within: Within,
    database: Database,
    clock: Clock,
    actor: str,
    reason: str | None = None,
    at_once: bool = False,
) -> OrgJob:
    """`at_once`: whoever is at work on it is not waited for; only what was begun elsewhere has to stop there first.
    Safe to repeat. ConflictError: it has ended otherwise."""
    with database.transaction() as session:
        run, now = newest_run(session, job_id, within), clock.now()
        if run.status in ENDED_RUN_STATES - {RunState.CANCELLED}:
            raise ConflictError(f"Job {job_id} has ended, it is {run.status}: there is nothing to cancel.")
        if run.status != RunState.CANCELLED:
            _stop(session, run, actor, reason, now, at_once=at_once)
            session.flush()
        return get_job(session, job_id, within)


def _stop(session: Session, run: JobRunRow, actor: str, reason: str | None, now: datetime, *, at_once: bool) -> None:
    is_new = run.cancel_requested_at is None
    if is_new:
        run.cancel_requested_at, run.cancelled_by, run.cancel_reason = now, actor, reason
    was, ends = run.status, run.status == RunState.PENDING or (at_once and run.following is None)
    if ends:
        session.flush()
        end_attempts(session, {run.id: cancelled(run.cancel_reason)}, actor, now)
    if is_new or ends:
        note(
            session,
            org_id=run.org_id,
            actor=actor,
            action="cancel",
            entity="job",
            entity_id=str(run.job_id),
            before={"status": was},
            after={"status": run.status, "atOnce": at_once},
            reason=reason,
            now=now,
        )
