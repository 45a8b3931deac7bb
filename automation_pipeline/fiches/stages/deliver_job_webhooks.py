"""Send the webhooks of jobs over days whose time has come, and write down how each delivery stands."""

from datetime import datetime
from functools import partial

from automation_pipeline.core.delivery import Answer, Patience
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.webhooks import WebhookSender, body_of
from automation_pipeline.fiches.domain.fetch_events import DueDelivery, webhook_headers
from automation_pipeline.fiches.store.job_deliveries import claim_due, is_delivery_due, record_delivery
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.deliveries import Tray, deliver_waiting

AT_ONCE = 10
PATIENCE = Patience(attempts=3, backoff=Backoff(base_seconds=2, cap_seconds=30), insists=True)


async def deliver_job_webhooks(sender: WebhookSender, *, database: Database, hold_seconds: float) -> int:
    """How many were tried, of the oldest few."""

    async def send(due: DueDelivery, now: datetime) -> Answer:
        body = body_of(due.payload)
        return await sender.send(due.url, body, webhook_headers(due, body, now))

    tray = Tray(is_delivery_due, partial(claim_due, limit=AT_ONCE, hold_seconds=hold_seconds), record_delivery)
    return await deliver_waiting(tray, send, patience=PATIENCE, database=database)
