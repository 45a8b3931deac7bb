"""Take away enrichments that are over, and the moves of companies, once they are older than they are kept."""

from automation_pipeline.enrichment.store.old_rows import JOBS, MOVES
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.retention import Look, look_through


def forget_old_jobs(look: Look, *, keep_days: int, keep_move_days: int, database: Database) -> dict[str, int]:
    return look_through([(JOBS, keep_days), (MOVES, keep_move_days)], look, database=database)
