"""Relay the outbox: realtime events, notifications and webhooks."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from random import Random
from sys import maxsize
from uuid import uuid4

from sqlalchemy import select, update

from automation_pipeline.automation.events import (
    NOTIFICATION_EVENT,
    Notification,
    NotificationChannel,
    webhook_headers,
)
from automation_pipeline.automation.ports import DeliveryServices, EventPublisher, PublishResult
from automation_pipeline.automation.tables import NotificationRow
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.core.events import is_internal
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.webhooks import (
    INTERRUPTED,
    Delivery,
    DeliveryStatus,
    WebhookAnswer,
    body_of,
)
from automation_pipeline.fiches.tables import FetchDeliveryRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.deliveries import DeliveryQueue, deliver_waiting, is_any_due
from automation_pipeline.storage.outbox import (
    ClaimedEvent,
    claim_in_order,
    claim_waiting,
    count_attempts,
    hand_back,
    is_waiting,
    lock_publishing,
    mark_published,
    mark_waiting_published,
    park,
    put_back,
)
from automation_pipeline.storage.rate_limits import end_pause, is_paused, last_pause_seconds, pause
from automation_pipeline.storage.statements import among, database_now

EVENTS_AT_ONCE = 200
EVENTS_MARKED_AT_ONCE = 10_000  # without a publisher
# The relay checks its claim between two calls.
EVENTS_PER_CALL = 10
MAX_ATTEMPTS = 5
PUBLISHER_PAUSE = "publisher"
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 60.0
# After a pause this long (the fourth in a row), the relay checks whether a single event breaks the
# publisher.
PROBE_AFTER_PAUSE_SECONDS = 16.0
_BACKOFF = Backoff(base_seconds=10, cap_seconds=3600)


@dataclass
class _Publishing:
    """The state of the claimed events. No event in `waiting` has a final result."""

    waiting: list[ClaimedEvent]
    out: list[ClaimedEvent] = field(default_factory=list[ClaimedEvent])
    failed: list[tuple[ClaimedEvent, str]] = field(default_factory=list[tuple[ClaimedEvent, str]])
    held_up: list[ClaimedEvent] = field(default_factory=list[ClaimedEvent])
    outage: TransientError | None = None


async def publish_events(  # noqa: PLR0913  the bounds of one relay
    publisher: EventPublisher | None,
    worker: str,
    *,
    database: Database,
    hold_seconds: float,
    budget_seconds: float = float("inf"),
    beat: Callable[[], None] = lambda: None,
    caused_since: datetime | None = None,
) -> int:
    """The number of published events. Without a publisher, all events count as published: the table
    is their record. `beat` is called before each call of the publisher.

    During an outage of the publisher all events wait in order, and every relay pauses. An event
    that cannot be published blocks only the later events of its aggregate.
    """
    if publisher is None:
        with database.transaction() as session:
            return mark_waiting_published(
                session,
                limit=EVENTS_MARKED_AT_ONCE,
                except_name=NOTIFICATION_EVENT,
                caused_since=caused_since,
            )
    with database.transaction() as session:
        if is_paused(session, PUBLISHER_PAUSE):
            return 0
        needs_probe = last_pause_seconds(session, PUBLISHER_PAUSE) >= PROBE_AFTER_PAUSE_SECONDS
        claims = claim_in_order(
            session,
            worker,
            limit=EVENTS_AT_ONCE,
            hold_seconds=hold_seconds,
            except_name=NOTIFICATION_EVENT,
            caused_since=caused_since,
        )
    if not claims:
        return 0
    state = _Publishing(claims)
    ends_at = time.monotonic() + min(budget_seconds, hold_seconds / 2)
    try:
        if needs_probe or claims[0].attempt > 1:
            beat()
            # One by one at first, to find a single event that breaks the publisher.
            for _ in range(EVENTS_PER_CALL):
                if state.waiting and state.outage is None and time.monotonic() < ends_at:
                    await _probe_once(state, publisher, ends_at)
        await _publish_all(state, publisher, ends_at, beat)
    finally:  # an interrupt must not lose the record of published events
        with database.transaction() as session:
            _record_results(session, worker, state)
    return len(state.out)


async def _probe_once(state: _Publishing, publisher: EventPublisher, ends_at: float) -> None:
    """Publish the first event of several aggregates, one by one, until one succeeds. A success
    shows that there is no outage, so the earlier failures count as attempts. If none succeeds, it
    is an outage and no event loses an attempt."""
    firsts = {claimed.event.correlation_id: claimed for claimed in reversed(state.waiting)}
    suspects: list[tuple[ClaimedEvent, TransientError]] = []
    for claimed in sorted(firsts.values(), key=lambda claimed: claimed.id)[:EVENTS_PER_CALL]:
        if suspects and time.monotonic() >= ends_at:
            break
        stopped = (await _publish(publisher, [claimed])).stopped
        if isinstance(stopped, TransientError):
            suspects.append((claimed, stopped))
            if stopped.retry_after_seconds is not None:
                break
        elif stopped is not None:
            _record_failure(state, claimed, stopped)
        else:
            state.waiting.remove(claimed)
            state.out.append(claimed)
            # An internal event is not sent, so it does not prove that the publisher works.
            if not is_internal(claimed.event.name):
                for failed, error in suspects:
                    _record_failure(state, failed, error)
                return
    state.outage = suspects[0][1] if suspects else None


async def _publish_all(
    state: _Publishing, publisher: EventPublisher, ends_at: float, beat: Callable[[], None]
) -> None:
    """Stop well before the claim expires, because another relay may then claim the same events."""
    while state.waiting and state.outage is None and time.monotonic() < ends_at:
        beat()
        published = await _publish(publisher, state.waiting[:EVENTS_PER_CALL])
        state.out += state.waiting[: published.out]
        del state.waiting[: published.out]
        if isinstance(published.stopped, TransientError):
            state.outage = published.stopped
        elif published.stopped is not None:
            _record_failure(state, state.waiting[0], published.stopped)


async def _publish(publisher: EventPublisher, claims: list[ClaimedEvent]) -> PublishResult:
    try:
        return await publisher.publish([claimed.event for claimed in claims])
    except AutomationError as error:
        return PublishResult(0, error)
    except Exception as error:  # noqa: BLE001  a bug with one event must not stop the others
        return (
            PublishResult(0, error) if len(claims) == 1 else await _publish(publisher, claims[:1])
        )


def _record_failure(state: _Publishing, failed: ClaimedEvent, error: Exception) -> None:
    state.waiting.remove(failed)
    state.failed.append((failed, f"{type(error).__name__}: {error}"))
    aggregate = failed.event.correlation_id
    state.held_up += [
        claimed for claimed in state.waiting if claimed.event.correlation_id == aggregate
    ]
    state.waiting = [
        claimed for claimed in state.waiting if claimed.event.correlation_id != aggregate
    ]


def _record_results(session: Session, worker: str, state: _Publishing) -> None:
    lock_publishing(session)
    mark_published(session, worker, [claimed.id for claimed in state.out])
    count_attempts(session, worker, [claimed.id for claimed, _ in state.failed])
    for claimed, error in state.failed:
        if claimed.attempt >= MAX_ATTEMPTS:
            park(session, worker, claimed.id, error=error)
        else:
            delay = _BACKOFF.delay(claimed.attempt, Random())
            put_back(session, worker, claimed.id, error=error, delay_seconds=delay)
    untried = [claimed.id for claimed in (*state.waiting, *state.held_up)]
    hand_back(session, worker, untried, error=str(state.outage) if state.outage else None)
    if state.outage is not None:
        wait = state.outage.retry_after_seconds or 0.0
        pause(
            session,
            PUBLISHER_PAUSE,
            first_seconds=FIRST_PAUSE_SECONDS,
            cap_seconds=LONGEST_PAUSE_SECONDS,
            at_least=wait,
        )
    elif state.out:
        end_pause(session, PUBLISHER_PAUSE)


NOTIFICATIONS_AT_ONCE = 10
# Claims beyond the attempts of a message: its delivery crashed, possibly with its process.
MAX_BROKEN_DELIVERIES = 3


@dataclass(frozen=True)
class _DueNotification:
    """`attempts`: those so far, without interrupted ones. `is_broken`: its deliveries broke off
    every time."""

    event_id: int
    row_id: int
    notification: Notification
    attempts: int
    is_broken: bool

    @property
    def attempt(self) -> int:
        return maxsize if self.is_broken else self.attempts + 1


async def deliver_notifications(
    services: DeliveryServices,
    worker: str,
    *,
    database: Database,
    hold_seconds: float,
    caused_since: datetime | None = None,
) -> int:
    """The number of messages that were waiting, of the oldest few. Delivery is at least once: if a
    process dies after sending and before recording, the message is sent again with the same key."""
    policy = services.delivery_policy

    def claim(session: Session) -> list[_DueNotification]:
        claims = claim_waiting(
            session,
            worker,
            limit=NOTIFICATIONS_AT_ONCE,
            hold_seconds=hold_seconds,
            only=NOTIFICATION_EVENT,
            caused_since=caused_since,
        )
        claimed = {one.event.payload.get("notification_id"): one for one in claims}
        ids = [id_ for id_ in claimed if isinstance(id_, int)]
        unsent = among(session, NotificationRow.id, ids)
        is_pending = NotificationRow.status == DeliveryStatus.PENDING
        due: list[_DueNotification] = []
        for row in session.scalars(select(NotificationRow).where(unsent, is_pending)):
            one = claimed.pop(row.id)
            is_broken = one.attempt > policy.attempts + MAX_BROKEN_DELIVERIES
            channel = NotificationChannel(row.channel)
            notification = Notification(row.run_id, channel, row.target, row.payload)
            due.append(_DueNotification(one.id, row.id, notification, row.attempts, is_broken))
        mark_published(session, worker, [one.id for one in claimed.values()])
        return due

    def record(session: Session, due: _DueNotification, delivery: Delivery) -> None:
        if delivery.error != INTERRUPTED:
            attempts = due.attempts if due.is_broken else delivery.attempts
            _record_delivery(session, due.row_id, replace(delivery, attempts=attempts))
        if delivery.status is DeliveryStatus.PENDING:
            error, pause = delivery.error or "", delivery.pause_seconds
            put_back(session, worker, due.event_id, error=error, delay_seconds=pause)
        else:
            mark_published(session, worker, [due.event_id])

    queue = DeliveryQueue(partial(is_waiting, caused_since=caused_since), claim, record)
    send = partial(_send, services)
    return await deliver_waiting(queue, send, policy=policy, database=database)


async def _send(
    services: DeliveryServices, due: _DueNotification, now: datetime
) -> WebhookAnswer | None:
    notification, payload = due.notification, due.notification.payload
    if notification.channel is NotificationChannel.WEBHOOK:
        body = body_of(payload)
        headers = webhook_headers(notification, body, services.webhook_secret, int(now.timestamp()))
        return await services.webhooks.send(notification.target, body, headers)
    if services.mail is None:
        raise PermanentError("E-mail is not configured (set SMTP_HOST, and SMTP_FROM or SMTP_USER)")
    subject, text = str(payload["subject"]), str(payload["text"])
    await services.mail.send(notification.target, subject, text, delivery=notification.key)
    return None


def _record_delivery(session: Session, row_id: int, delivery: Delivery) -> None:
    is_sent = delivery.status is DeliveryStatus.SENT
    session.execute(
        update(NotificationRow)
        .where(NotificationRow.id == row_id, NotificationRow.status == DeliveryStatus.PENDING)
        .values(
            status=delivery.status,
            attempts=delivery.attempts,
            status_code=delivery.status_code,
            response_body=delivery.response_body,
            last_error=delivery.error,
            sent_at=database_now() if is_sent else None,
        )
        .execution_options(synchronize_session=False)
    )


BUDGET_SECONDS = 20.0
# Longer than any batch takes, so that no other relay claims the same events.
HOLD_SECONDS = 120.0


@dataclass(frozen=True)
class RelayCounts:
    events: int
    messages: int


async def relay_events(
    services: DeliveryServices,
    *,
    database: Database,
    budget_seconds: float = BUDGET_SECONDS,
    hold_seconds: float = HOLD_SECONDS,
    beat: Callable[[], None] = lambda: None,
    caused_since: datetime | None = None,
) -> RelayCounts:
    """Relay events, notifications and job webhooks concurrently, each until its queue is empty, so
    that a slow receiver delays no other kind. Nothing new starts after the budget is used up, but
    calls in progress may take longer. `beat` is called regularly. With `caused_since`, only
    aggregates with events since that instant are relayed."""
    worker = f"relay-{uuid4().hex}"  # not the process id: one process may run two relays
    ends_at = time.monotonic() + budget_seconds

    is_event_waiting = partial(is_waiting, caused_since=caused_since)
    is_job_webhook_due = partial(is_any_due, row=FetchDeliveryRow)

    async def drain(
        carry: Callable[[float], Coroutine[object, object, int]],
        is_any_left: Callable[[Session], bool],
    ) -> int:
        total = 0
        while (left := ends_at - time.monotonic()) > 0:
            with database.reading() as session:
                if not is_any_left(session):
                    break
            count = await carry(left)
            if not count:
                break
            total += count
        return total

    def publish(left: float) -> Coroutine[object, object, int]:
        return publish_events(
            services.publisher,
            worker,
            database=database,
            hold_seconds=hold_seconds,
            budget_seconds=left,
            beat=beat,
            caused_since=caused_since,
        )

    def send(_: float) -> Coroutine[object, object, int]:
        return deliver_notifications(
            services,
            worker,
            database=database,
            hold_seconds=hold_seconds,
            caused_since=caused_since,
        )

    def send_of_jobs(_: float) -> Coroutine[object, object, int]:
        from automation_pipeline.fiches.fetch_jobs import deliver_job_webhooks  # noqa: PLC0415  runs of fiches send none

        return deliver_job_webhooks(services.webhooks, database=database, hold_seconds=hold_seconds)

    events, *messages = await _gather(
        drain(publish, is_event_waiting),
        drain(send, is_event_waiting),
        drain(send_of_jobs, is_job_webhook_due),
    )
    return RelayCounts(events, sum(messages))


async def _gather(*works: Coroutine[object, object, int]) -> list[int]:
    ended = await asyncio.gather(*works, return_exceptions=True)
    for broken in ended:  # raised after the others have finished
        if isinstance(broken, BaseException):
            raise broken
    return [count for count in ended if isinstance(count, int)]
