"""Raise alerts about schedules, jobs and hosts, and deliver them."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.webhooks import DeliveryPolicy, WebhookAnswer, WebhookSender, body_of
from automation_pipeline.org_jobs.queries.health import (
    add_alerts,
    claim_due,
    health_of_all,
    is_alert_due,
    last_raised,
    lock_alerts,
    record_delivery,
)
from automation_pipeline.org_jobs.rules.health import (
    DueOrgAlert,
    OrgAlert,
    due_alerts,
    headers_of,
    is_to_raise,
    message_of,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.deliveries import DeliveryQueue, deliver_waiting


def raise_org_alerts(*, database: Database, clock: Clock, has_webhook: bool) -> Sequence[OrgAlert]:
    """Those that were raised now. Two copies at once raise each of them once; where all is well
    nothing is locked."""
    now = clock.now()
    with database.reading() as session:
        health = health_of_all(session, now)
    found = due_alerts(health, now)
    if not found:
        return []
    with database.transaction() as session:
        lock_alerts(session)
        last = last_raised(session, {alert.subject for alert in found})
        due = [
            alert
            for alert in found
            if is_to_raise(alert, last.get((alert.name, alert.subject)), now)
        ]
        return add_alerts(session, due, now, has_webhook=has_webhook)


DELIVERY_BATCH = 20
# Longer than any attempt takes, so that nobody else gets what is being carried.
HOLD_SECONDS = 120.0
_TRAY = DeliveryQueue(
    is_alert_due,
    partial(claim_due, limit=DELIVERY_BATCH, hold_seconds=HOLD_SECONDS),
    record_delivery,
)


async def deliver_org_alerts(
    *,
    webhooks: WebhookSender,
    secret: str | None,
    url: str,
    patience: DeliveryPolicy,
    database: Database,
) -> int:
    """How many were tried, of the oldest few."""

    async def send(due: DueOrgAlert, now: datetime) -> WebhookAnswer:
        body = body_of(message_of(due))
        return await webhooks.send(url, body, headers_of(due, body, secret, now))

    return await deliver_waiting(_TRAY, send, patience=patience, database=database)
