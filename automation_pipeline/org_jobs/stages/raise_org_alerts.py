"""Look at how schedules, jobs and hosts of all organisations fare, and raise the alerts that are due."""

from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.domain.alerts import alerts, is_to_raise
from automation_pipeline.org_jobs.domain.raised_alert import OrgAlert
from automation_pipeline.org_jobs.store.alerts import add_alerts, last_raised, one_raiser_at_a_time
from automation_pipeline.org_jobs.store.health import health_of_all
from automation_pipeline.storage.database import Database


def raise_org_alerts(*, database: Database, clock: Clock, has_webhook: bool) -> Sequence[OrgAlert]:
    """Those that were raised now. Two copies at once raise each of them once; where all is well nothing is locked."""
    now = clock.now()
    with database.reading() as session:
        health = health_of_all(session, now)
    found = alerts(health, now)
    if not found:
        return []
    with database.transaction() as session:
        one_raiser_at_a_time(session)
        last = last_raised(session, {alert.subject for alert in found})
        due = [alert for alert in found if is_to_raise(alert, last.get((alert.name, alert.subject)), now)]
        return add_alerts(session, due, now, has_webhook=has_webhook)
