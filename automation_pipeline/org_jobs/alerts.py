"""Raise alerts about schedules, jobs and hosts, and deliver them."""

from collections.abc import Sequence
from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.webhooks import (
    Delivery,
    DeliveryPolicy,
    WebhookAnswer,
    WebhookSender,
    body_of,
)
from automation_pipeline.org_jobs.queries.health import (
    add_alerts,
    as_alert,
    due_alerts,
    last_raised,
)
from automation_pipeline.org_jobs.rules.health import OrgAlert, headers_of, is_to_raise, message_of
from automation_pipeline.org_jobs.tables import OrgAlertRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.deliveries import (
    DeliveryQueue,
    claim_oldest,
    deliver_waiting,
    is_any_due,
    record_attempt,
)
from automation_pipeline.storage.statements import advisory_lock

DELIVERY_BATCH = 20
# Longer than any attempt takes, so that nobody else claims an alert during its delivery.
HOLD_SECONDS = 120.0


def raise_org_alerts(*, database: Database, clock: Clock, has_webhook: bool) -> Sequence[OrgAlert]:
    """The alerts that are raised now. Two processes at once raise each of them once; where all is
    well nothing is locked."""
    now = clock.now()
    with database.reading() as session:
        found = due_alerts(session, now)
    if not found:
        return []
    with database.transaction() as session:
        advisory_lock(session, "org-alerts")
        last = last_raised(session, {alert.subject for alert in found})
        due = [
            alert
            for alert in found
            if is_to_raise(alert, last.get((alert.name, alert.subject)), now)
        ]
        return add_alerts(session, due, now, has_webhook=has_webhook)


def _claim(session: Session) -> list[OrgAlert]:
    rows = claim_oldest(session, OrgAlertRow, limit=DELIVERY_BATCH, hold_seconds=HOLD_SECONDS)
    return [as_alert(row) for row in rows]


def _record(session: Session, alert: OrgAlert, delivery: Delivery) -> None:
    record_attempt(session, OrgAlertRow, alert.id, alert.attempt, delivery)


_QUEUE = DeliveryQueue(lambda session: is_any_due(session, OrgAlertRow), _claim, _record)


async def deliver_org_alerts(
    *,
    webhooks: WebhookSender,
    secret: str | None,
    url: str,
    patience: DeliveryPolicy,
    database: Database,
) -> int:
    """How many deliveries were tried, of the oldest alerts."""

    async def send(due: OrgAlert, now: datetime) -> WebhookAnswer:
        body = body_of(message_of(due))
        return await webhooks.send(url, body, headers_of(due, body, secret, now))

    return await deliver_waiting(_QUEUE, send, patience=patience, database=database)
