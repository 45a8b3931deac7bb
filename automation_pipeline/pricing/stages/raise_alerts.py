"""Look at how every project's price changes fare, and raise the alerts that are due."""

from collections.abc import Mapping, Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.domain.alerts import AlertSeverity, alerts, is_to_fire
from automation_pipeline.pricing.domain.raised_alert import PricingAlert
from automation_pipeline.pricing.store.alerts import add_alerts, last_fired, one_raiser_at_a_time
from automation_pipeline.pricing.store.health import health_of_projects
from automation_pipeline.storage.database import Database


def raise_alerts(*, database: Database, clock: Clock, webhooks: Mapping[AlertSeverity, str]) -> Sequence[PricingAlert]:
    """Those that were raised now. Two copies at once raise each of them once; where all is well nothing is locked.
    An alert whose severity has no webhook is stored only."""
    now = clock.now()
    with database.reading() as session:
        healths = health_of_projects(session, now)
    found = [(project, alert) for project, health in healths.items() for alert in alerts(health)]
    if not found:
        return []
    with database.transaction() as session:
        one_raiser_at_a_time(session)
        last = last_fired(session, {project for project, _ in found})
        due = [
            (project, alert)
            for project, alert in found
            if is_to_fire(alert.severity, last.get((project, alert.name)), now)
        ]
        return add_alerts(session, due, now, webhooks=webhooks)
