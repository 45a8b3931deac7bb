"""Look when a stored schedule is due next."""

from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.domain.coming_runs import plan_of
from automation_pipeline.org_jobs.domain.preview import SchedulePreview, check_count
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.schedules import get_schedule
from automation_pipeline.storage.database import Database


def coming_runs(
    schedule_id: str,
    *,
    within: Within,
    database: Database,
    clock: Clock,
    count: int,
    after: datetime | None = None,
) -> SchedulePreview:
    """Of one that is paused until a time, those from then on; of others that are not active none, with why. The next
    one is marked if it is to be left out."""
    check_count(count)
    with database.reading() as session:
        schedule = get_schedule(session, schedule_id, within)
    return plan_of(schedule, clock.now(), count, after)
