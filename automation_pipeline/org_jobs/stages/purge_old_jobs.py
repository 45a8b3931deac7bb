"""Take away what is older than it is kept: jobs that are over, fires, backfills, deleted schedules, logs and alerts."""

from dataclasses import astuple, dataclass, fields
from datetime import timedelta

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.store import purging
from automation_pipeline.storage.database import Database

KEEP_DAYS = 90
# Who did what is asked long after.
AUDIT_KEEP_DAYS = 365
MOST_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True)
class Purged:
    """How many of each were taken away."""

    jobs: int
    fires: int
    backfills: int
    schedules: int
    log_entries: int
    alerts: int

    @property
    def total(self) -> int:
        return sum(astuple(self))

    def __str__(self) -> str:
        parts = [f"{getattr(self, one.name)} {one.name.replace('_', ' ')}" for one in fields(self)]
        return f"Took away {', '.join(parts)}."


def purge_old_jobs(
    *,
    database: Database,
    clock: Clock,
    keep_days: int = KEEP_DAYS,
    audit_keep_days: int = AUDIT_KEEP_DAYS,
    limit: int = MOST_AT_ONCE,
) -> Purged:
    """At most `limit` of each; what is left is for the next look. Each kind is a transaction of its own."""
    now = clock.now()

    def taken(kind: purging.Purge, days: int = keep_days) -> int:
        with database.transaction() as session:
            return kind(session, now - timedelta(days=days), limit)

    return Purged(
        jobs=taken(purging.purge_jobs),
        fires=taken(purging.purge_fires),
        backfills=taken(purging.purge_batches),
        schedules=taken(purging.purge_schedules),
        log_entries=taken(purging.purge_audit_log, audit_keep_days),
        alerts=taken(purging.purge_alerts),
    )
