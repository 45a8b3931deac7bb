"""Take away the queue's memory of recordings that were transcribed, once it is older than it is kept."""

from automation_pipeline.storage.database import Database
from automation_pipeline.storage.retention import Look, look_through
from automation_pipeline.transcription.store.old_rows import TASKS


def forget_old_tasks(look: Look, *, keep_days: int, database: Database) -> dict[str, int]:
    return look_through([(TASKS, keep_days)], look, database=database)
