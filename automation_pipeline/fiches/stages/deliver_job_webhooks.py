"""Send the webhooks of jobs over days whose time has come, and write down how each delivery stands."""

import asyncio

from automation_pipeline.core.delivery import Answer, Delivery, DeliveryStatus, Patience, attempt
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.webhooks import WebhookSender, body_of
from automation_pipeline.fiches.domain.fetch_events import DueDelivery, webhook_headers
from automation_pipeline.fiches.store.job_deliveries import claim_due, is_delivery_due, record_delivery
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_time

AT_ONCE = 10
PATIENCE = Patience(attempts=3, backoff=Backoff(base_seconds=2, cap_seconds=30), insists=True)
BROKE_OFF = "Its delivery broke off every time"


async def deliver_job_webhooks(sender: WebhookSender, *, database: Database, hold_seconds: float) -> int:
    """How many were tried, of the oldest few. Who dies between sending and writing it down has used up an attempt, and
    the receiver can tell by the delivery's id."""
    with database.reading() as session:
        if not is_delivery_due(session):  # a claim would stand in line with the writers for nothing
            return 0
    with database.transaction() as session:
        claimed, now = claim_due(session, limit=AT_ONCE, hold_seconds=hold_seconds), database_time(session)

    async def send(due: DueDelivery) -> Answer:
        body = body_of(due.payload)
        return await sender.send(due.url, body, webhook_headers(due, body, now))

    async def deliver(due: DueDelivery) -> None:
        if due.attempt > PATIENCE.attempts:
            delivery = Delivery(DeliveryStatus.FAILED, due.attempt, error=BROKE_OFF)
        else:
            delivery = await attempt(send(due), due.attempt, PATIENCE)
        with database.transaction() as session:
            record_delivery(session, due, delivery)

    ended = await asyncio.gather(*map(deliver, claimed), return_exceptions=True)
    for broken in ended:  # after the others are through: the database does not answer
        if broken is not None:
            raise broken
    return len(claimed)
