"""Hand waiting messages about runs to their receivers, and write down how each delivery stands."""

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime

from automation_pipeline.automation.domain.notifications import EVENT, Channel, headers_of
from automation_pipeline.automation.ports import PostOffice
from automation_pipeline.automation.store.notifications import StoredNotification, record_delivery, unsent
from automation_pipeline.core.delivery import INTERRUPTED, Answer, Delivery, DeliveryStatus, attempt
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.webhooks import body_of
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import ClaimedEvent, claim_waiting, mark_published, put_back

AT_ONCE = 10
# Claims beyond the attempts that a message has: its delivery broke, or took its process with it.
MOST_BREAKS = 3


async def deliver_notifications(
    post: PostOffice,
    worker: str,
    *,
    database: Database,
    hold_seconds: float,
    caused_since: datetime | None = None,
) -> int:
    """How many were waiting, of the oldest few. At least once each: who dies between sending and writing it down has
    sent it for nothing, and the receiver can tell by its key."""
    with database.transaction() as session:
        claims = claim_waiting(
            session, worker, limit=AT_ONCE, hold_seconds=hold_seconds, only=EVENT, caused_since=caused_since
        )
    if not claims:
        return 0
    with database.reading() as session:
        stored = unsent(session, [number for claimed in claims if (number := _notification_id(claimed)) is not None])
    ended = await asyncio.gather(
        *(_deliver(claimed, stored, post, worker, database) for claimed in claims), return_exceptions=True
    )
    for broken in ended:  # after the others are through: the database does not answer
        if broken is not None:
            raise broken
    return len(claims)


async def _deliver(
    claimed: ClaimedEvent, stored: Mapping[int, StoredNotification], post: PostOffice, worker: str, database: Database
) -> None:
    message = stored.get(_notification_id(claimed) or 0)
    try:
        delivery = None if message is None else await _attempt(message, claimed.attempt, post)
    except asyncio.CancelledError:  # the relay's time is over: another one need not wait for the end of the hold
        with database.transaction() as session:
            put_back(session, worker, claimed.id, error=INTERRUPTED, delay_seconds=0)
        raise
    with database.transaction() as session:
        if message is not None and delivery is not None:
            record_delivery(session, message.id, delivery, database_time(session))
        if delivery is not None and delivery.status is DeliveryStatus.PENDING:
            error, pause = delivery.error or "", delivery.pause_seconds
            put_back(session, worker, claimed.id, error=error, delay_seconds=pause)
        else:
            mark_published(session, worker, [claimed.id])


async def _attempt(message: StoredNotification, claims: int, post: PostOffice) -> Delivery:
    if claims > post.patience.attempts + MOST_BREAKS:
        return Delivery(DeliveryStatus.FAILED, message.attempts, error="Its delivery broke off every time")
    return await attempt(_send(message, post), message.attempts + 1, post.patience)


async def _send(message: StoredNotification, post: PostOffice) -> Answer | None:
    notification, payload = message.notification, message.notification.payload
    if notification.channel is Channel.WEBHOOK:
        body = body_of(payload)
        headers = headers_of(notification, body, post.secret, int(time.time()))
        return await post.webhooks.send(notification.target, body, headers)
    if post.mail is None:
        raise PermanentError("E-mail is not configured (set SMTP_HOST, and SMTP_FROM or SMTP_USER)")
    subject, text = str(payload["subject"]), str(payload["text"])
    await post.mail.send(notification.target, subject, text, delivery=notification.key)
    return None


def _notification_id(claimed: ClaimedEvent) -> int | None:
    number = claimed.event.payload.get("notification_id")
    return number if isinstance(number, int) else None
