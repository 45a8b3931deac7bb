"""Take away what ended runs have written down and sent, once it is older than it is kept."""

from automation_pipeline.automation.store.old_rows import LOGS, MOVES, NOTIFICATIONS
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.retention import Look, look_through


def forget_old_logs(
    look: Look, *, keep_log_days: int, keep_notification_days: int, keep_move_days: int, database: Database
) -> dict[str, int]:
    kept = (LOGS, keep_log_days), (NOTIFICATIONS, keep_notification_days), (MOVES, keep_move_days)
    return look_through(kept, look, database=database)
