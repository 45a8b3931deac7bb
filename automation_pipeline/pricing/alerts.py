"""Alerts: raise, deliver, remove."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.webhooks import (
    AlertSeverity,
    DeliveryPolicy,
    WebhookAnswer,
    WebhookSender,
    body_of,
)
from automation_pipeline.pricing.models.history import (
    DuePricingAlert,
    PricingAlert,
    alert_headers,
    alert_payload,
)
from automation_pipeline.pricing.queries.health import health_of_projects
from automation_pipeline.pricing.queries.history import (
    add_alerts,
    claim_due_alerts,
    is_alert_due,
    last_alerts,
    lock_alerts,
    record_alert_delivery,
)
from automation_pipeline.pricing.rules.monitoring import evaluate_alerts, is_to_fire
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.deliveries import DeliveryQueue, deliver_waiting


def raise_alerts(
    *, database: Database, clock: Clock, webhooks: Mapping[AlertSeverity, str]
) -> Sequence[PricingAlert]:
    """Those that were raised now. Two copies at once raise each of them once; where all is well
    nothing is locked. An alert whose severity has no webhook is stored only."""
    now = clock.now()
    with database.reading() as session:
        healths = health_of_projects(session, now)
    found = [
        (project, alert) for project, health in healths.items() for alert in evaluate_alerts(health)
    ]
    if not found:
        return []
    with database.transaction() as session:
        lock_alerts(session)
        last = last_alerts(session, {project for project, _ in found})
        due = [
            (project, alert)
            for project, alert in found
            if is_to_fire(alert.severity, last.get((project, alert.name)), now)
        ]
        return add_alerts(session, due, now, webhooks=webhooks)


ALERTS_AT_ONCE = 20
# Longer than any attempt takes, so that nobody else gets what is being carried.
HOLD_SECONDS = 120.0
_TRAY = DeliveryQueue(
    is_alert_due,
    partial(claim_due_alerts, limit=ALERTS_AT_ONCE, hold_seconds=HOLD_SECONDS),
    record_alert_delivery,
)


async def deliver_alerts(
    *,
    sender: WebhookSender,
    secret: str | None,
    webhooks: Mapping[AlertSeverity, str],
    patience: DeliveryPolicy,
    database: Database,
) -> int:
    """How many were tried, of the oldest few. The severity chooses the webhook."""

    async def send(due: DuePricingAlert, now: datetime) -> WebhookAnswer:
        body = body_of(alert_payload(due))
        url = webhooks.get(AlertSeverity(due.severity))
        if url is None:
            raise PermanentError(f"No webhook is configured for alerts of severity {due.severity}.")
        return await sender.send(url, body, alert_headers(due, body, secret, now))

    return await deliver_waiting(_TRAY, send, patience=patience, database=database)
