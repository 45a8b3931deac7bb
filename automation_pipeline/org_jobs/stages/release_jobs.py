"""Ask Dagster for workers for the runs whose turn it is, fairly between organisations and within all limits."""

from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.store.openings import of_service, put_off_closed
from automation_pipeline.org_jobs.store.queue import ask_for_workers, whose_turn
from automation_pipeline.storage.database import Database


def release_jobs(*, database: Database, clock: Clock, limit: int) -> Sequence[int]:
    """The runs. Safe beside another copy of itself. A worker that never came is asked for again after a while."""
    with database.transaction() as session:
        now = clock.now()
        put_off_closed(session, of_service(), now)
        chosen = whose_turn(session, limit, now)
        return ask_for_workers(session, chosen, now) if chosen else []
