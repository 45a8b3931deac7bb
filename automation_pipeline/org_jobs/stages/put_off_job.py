"""Leave a run alone for a while whose worker died before it began: the next one would die for the same reason."""

from datetime import timedelta

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.store.queue import put_off
from automation_pipeline.storage.database import Database

REST = timedelta(minutes=5)


def put_off_job(run_id: int, reason: str, *, database: Database, clock: Clock) -> bool:
    """Whether it was; the reason is shown with it. One that had begun is found by its lease, and costs an attempt."""
    with database.transaction() as session:
        return put_off(session, run_id, clock.now() + REST, reason)
