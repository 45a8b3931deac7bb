"""Take away jobs over days, and what their webhooks were told, once they are older than they are kept."""

from automation_pipeline.fiches.store.old_rows import FETCH_JOBS
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.retention import Look, look_through


def forget_old_fetch_jobs(look: Look, *, keep_days: int, database: Database) -> dict[str, int]:
    return look_through([(FETCH_JOBS, keep_days)], look, database=database)
