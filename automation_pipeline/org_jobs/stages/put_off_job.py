"""Leave a run alone for a while whose worker died before it began: the next one would die for the same reason."""

from datetime import timedelta

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.store.openings import opens_for
from automation_pipeline.org_jobs.store.queue import put_off
from automation_pipeline.storage.database import Database

REST = timedelta(minutes=5)


def put_off_job(run_id: int, reason: str, *, request: str, database: Database, clock: Clock) -> bool:
    """Whether it was, to a time within its window; the reason is shown with it. `request` is what the worker came for:
    once another one was asked for, or none is, its death changes nothing. A run that had begun is found by its lease,
    and costs an attempt."""
    with database.transaction() as session:
        until = opens_for(session, run_id, clock.now() + REST)
        return put_off(session, run_id, request, until, reason)
