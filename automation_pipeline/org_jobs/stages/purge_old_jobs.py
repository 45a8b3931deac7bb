"""Take away what is older than it is kept: jobs that are over, fires, backfills, deleted schedules, logs and alerts."""

from automation_pipeline.org_jobs.store import purging
from automation_pipeline.org_jobs.tables import BatchRow, FireRow, JobRow, ScheduleRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.retention import Look, look_through

# In this order: what is left of a schedule goes before it.
_PURGES = (
    (JobRow, purging.purge_jobs),
    (FireRow, purging.purge_fires),
    (BatchRow, purging.purge_batches),
    (ScheduleRow, purging.purge_schedules),
)


def purge_old_jobs(look: Look, *, keep_days: int, keep_audit_days: int, database: Database) -> dict[str, int]:
    """At most `look.limit` of each; what is left is for the next look. Each kind is a transaction of its own."""
    logged = ((purging.AUDIT_LOG, keep_audit_days), (purging.ALERTS, keep_days))
    return {**_of_jobs(look, keep_days, database), **look_through(logged, look, database=database)}


def _of_jobs(look: Look, keep_days: int, database: Database) -> dict[str, int]:
    if not keep_days:
        return {table.__tablename__: 0 for table, _ in _PURGES}
    before = look.before(keep_days)
    if look.is_dry:
        with database.reading() as session:
            return purging.count_old(session, before)
    taken: dict[str, int] = {}
    for table, purge in _PURGES:
        with database.transaction() as session:
            taken[table.__tablename__] = purge(session, before, look.limit)
    return taken
