"""Look over the past days for sales lists that are missing or too old."""

from datetime import date, timedelta

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.wall_clock import wall_time
from automation_pipeline.fiches.domain.days import Finding, judge_staleness, stale_days
from automation_pipeline.fiches.domain.times import CRM_ZONE
from automation_pipeline.fiches.store.sales import revalidated_since
from automation_pipeline.storage.database import Database

LOOKED_OVER = 31


def find_stale_days(first: date, *, database: Database, clock: Clock) -> Finding:
    """The days before today, a month of them, none before `first`."""
    now = clock.now()
    today = wall_time(now, CRM_ZONE).date()
    days = [today - timedelta(days=back) for back in range(LOOKED_OVER, 0, -1)]
    days = [day for day in days if day >= first]
    with database.reading() as session:
        asked = revalidated_since(session, days[0]) if days else {}
    return judge_staleness(stale_days(days, asked, now), days)
