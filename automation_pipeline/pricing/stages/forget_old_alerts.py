"""Take away alerts, and the moves of runs that are over, once they are older than they are kept."""

from automation_pipeline.pricing.store.old_rows import ALERTS, MOVES
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.retention import Look, look_through


def forget_old_alerts(look: Look, *, keep_days: int, keep_move_days: int, database: Database) -> dict[str, int]:
    return look_through([(ALERTS, keep_days), (MOVES, keep_move_days)], look, database=database)
