"""Do a job again that failed or was cancelled: another run of it, with all its attempts."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.org_jobs.domain.org_job import OrgJob
from automation_pipeline.org_jobs.domain.states import RunState
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.job_views import get_job
from automation_pipeline.org_jobs.store.retried_jobs import add_run, newest_run
from automation_pipeline.storage.database import Database


def retry_job(job_id: int, *, within: Within, database: Database, clock: Clock, actor: str) -> OrgJob:
    """Also when its schedule was deleted since. ConflictError: it waits, is at work, or has succeeded."""
    with database.transaction() as session:
        run, now = newest_run(session, job_id, within), clock.now()
        if run.status not in {RunState.FAILED, RunState.CANCELLED}:
            raise ConflictError(f"Job {job_id} is {run.status}: only one that failed or was cancelled is done again.")
        add_run(session, run, actor, now)
        note(
            session,
            org_id=run.org_id,
            actor=actor,
            action="retry",
            entity="job",
            entity_id=str(job_id),
            before={"status": run.status},
            after={"status": RunState.PENDING},
            now=now,
        )
        session.flush()
        return get_job(session, job_id, within)
