"""End a job over days that nobody works on any more as failed; what was fetched stays fetched."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.domain.fetch_job import broken_off
from automation_pipeline.fiches.stages.tell_of_job import tell_of_job
from automation_pipeline.fiches.store.jobs import get_job
from automation_pipeline.storage.database import Database


def fail_range(job_id: str, reason: str, *, database: Database, clock: Clock) -> bool:
    """False when it was over before, or is not there."""
    with database.transaction() as session:
        try:
            job = get_job(session, job_id, lock=True)
        except NotFoundError:
            return False
        if job.is_over:
            return False
        tell_of_job(session, broken_off(job, reason), clock.now())
    return True
