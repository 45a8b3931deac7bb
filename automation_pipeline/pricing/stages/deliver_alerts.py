"""Carry the alerts whose time has come to the webhook, and write down how each delivery stands."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial

from automation_pipeline.core.delivery import Answer, Patience
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.webhooks import WebhookSender, body_of
from automation_pipeline.pricing.domain.alerts import AlertSeverity
from automation_pipeline.pricing.domain.raised_alert import DueAlert, headers_of, message_of
from automation_pipeline.pricing.store.alerts import claim_due, is_alert_due, record_delivery
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.deliveries import Tray, deliver_waiting

AT_ONCE = 20
# Longer than any attempt takes, so that nobody else gets what is being carried.
HOLD_SECONDS = 120.0
_TRAY = Tray(is_alert_due, partial(claim_due, limit=AT_ONCE, hold_seconds=HOLD_SECONDS), record_delivery)


async def deliver_alerts(
    *,
    sender: WebhookSender,
    secret: str | None,
    webhooks: Mapping[AlertSeverity, str],
    patience: Patience,
    database: Database,
) -> int:
    """How many were tried, of the oldest few. The severity chooses the webhook."""

    async def send(due: DueAlert, now: datetime) -> Answer:
        body = body_of(message_of(due))
        url = webhooks.get(AlertSeverity(due.severity))
        if url is None:
            raise PermanentError(f"No webhook is configured for alerts of severity {due.severity}.")
        return await sender.send(url, body, headers_of(due, body, secret, now))

    return await deliver_waiting(_TRAY, send, patience=patience, database=database)
