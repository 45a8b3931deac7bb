"""Carry the alerts whose time has come to the webhook, and write down how each delivery stands."""

import asyncio

from automation_pipeline.core.delivery import Answer, Delivery, DeliveryStatus, Patience, attempt
from automation_pipeline.core.webhooks import WebhookSender, body_of
from automation_pipeline.pricing.domain.raised_alert import DueAlert, headers_of, message_of
from automation_pipeline.pricing.store.alerts import claim_due, is_alert_due, record_delivery
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_time

AT_ONCE = 20
# Longer than any attempt takes, so that nobody else gets what is being carried.
HOLD_SECONDS = 120.0
BROKE_OFF = "Its delivery broke off every time"


async def deliver_alerts(
    *, webhooks: WebhookSender, secret: str | None, url: str, patience: Patience, database: Database
) -> int:
    """How many were tried, of the oldest few, side by side: it takes no longer than one attempt may. Who dies between
    sending and writing it down has used up an attempt, and the receiver can tell by the delivery's name."""
    with database.reading() as session:
        if not is_alert_due(session):  # a claim would stand in line with the writers for nothing
            return 0
    with database.transaction() as session:
        claimed, now = claim_due(session, limit=AT_ONCE, hold_seconds=HOLD_SECONDS), database_time(session)

    async def send(due: DueAlert) -> Answer:
        body = body_of(message_of(due))
        return await webhooks.send(url, body, headers_of(due, body, secret, now))

    async def deliver(due: DueAlert) -> None:
        if due.attempt > patience.attempts:
            delivery = Delivery(DeliveryStatus.FAILED, due.attempt, error=BROKE_OFF)
        else:
            delivery = await attempt(send(due), due.attempt, patience)
        with database.transaction() as session:
            record_delivery(session, due, delivery)

    ended = await asyncio.gather(*map(deliver, claimed), return_exceptions=True)
    for broken in ended:  # after the others are through: the database does not answer
        if broken is not None:
            raise broken
    return len(claimed)
