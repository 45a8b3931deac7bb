"""Relaying the outbox: realtime events, notifications, webhooks."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from uuid import uuid4

from automation_pipeline.automation.ports import DeliveryServices, EventPublisher, PublishResult
from automation_pipeline.automation.queries.notifications import (
    StoredNotification,
    record_notification_delivery,
    unsent,
)
from automation_pipeline.automation.rules.notifications import (
    NOTIFICATION_EVENT,
    NotificationChannel,
    webhook_headers,
)
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.core.events import is_internal
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.webhooks import (
    INTERRUPTED,
    Delivery,
    DeliveryStatus,
    WebhookAnswer,
    attempt,
    body_of,
)
from automation_pipeline.fiches.fetch_jobs import deliver_job_webhooks
from automation_pipeline.fiches.queries.fetch_jobs import is_webhook_delivery_due
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import (
    ClaimedEvent,
    claim_in_order,
    claim_waiting,
    count_attempts,
    hand_back,
    is_waiting,
    lock_publishing,
    mark_published,
    park,
    put_back,
)
from automation_pipeline.storage.rate_limits import end_pause, is_paused, last_pause_seconds, pause

EVENTS_AT_ONCE = 200
# Between two handfuls it is seen whether the claim still holds.
EVENTS_PER_CALL = 10
MAX_ATTEMPTS = 5
PUBLISHER_PAUSE = "publisher"
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 60.0
# After so long a pause, the fourth in a row, an outage may be one event that the publisher breaks
# on.
PROBE_AFTER_PAUSE_SECONDS = 16.0
_BACKOFF = Backoff(base_seconds=10, cap_seconds=3600)


@dataclass
class _Publishing:
    """How claimed events stand: none of `waiting` was tried to its end."""

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
    """How many are out. Without a publisher all are: the table is their record. Each handful begins
    with a `beat`.

    When the publisher is away they all wait, in their order, and everybody leaves it alone for a
    while. Behind an event that cannot be published only those of its aggregate wait.
    """
    with database.transaction() as session:
        if publisher is not None and is_paused(session, PUBLISHER_PAUSE):
            return 0
        is_doubtful = last_pause_seconds(session, PUBLISHER_PAUSE) >= PROBE_AFTER_PAUSE_SECONDS
        claims = claim_in_order(
            session,
            worker,
            limit=EVENTS_AT_ONCE,
            hold_seconds=hold_seconds,
            but=NOTIFICATION_EVENT,
            caused_since=caused_since,
        )
        if publisher is None:
            mark_published(session, worker, [claimed.id for claimed in claims])
    if publisher is None or not claims:
        return len(claims)
    carried = _Publishing(claims)
    ends_at = time.monotonic() + min(budget_seconds, hold_seconds / 2)
    try:
        if is_doubtful or claims[0].attempt > 1:
            beat()
            await _probe(carried, publisher, ends_at)
        await _publish_all(carried, publisher, ends_at, beat)
    finally:  # interrupted too, what is out is out
        with database.transaction() as session:
            _record_results(session, worker, carried)
    return len(carried.out)


async def _probe(carried: _Publishing, publisher: EventPublisher, ends_at: float) -> None:
    """The publisher may break on one event of the first handful: its events go alone."""
    for _ in range(EVENTS_PER_CALL):
        if carried.waiting and carried.outage is None and time.monotonic() < ends_at:
            await _probe_once(carried, publisher, ends_at)


async def _probe_once(carried: _Publishing, publisher: EventPublisher, ends_at: float) -> None:
    """The first events of a few aggregates, each alone, until one is out: then what failed before
    it was no outage, and was tried. If none is, it is an outage, and costs nobody an attempt."""
    firsts = {claimed.event.correlation_id: claimed for claimed in reversed(carried.waiting)}
    doubted: list[tuple[ClaimedEvent, TransientError]] = []
    for claimed in sorted(firsts.values(), key=lambda claimed: claimed.id)[:EVENTS_PER_CALL]:
        if doubted and time.monotonic() >= ends_at:
            break
        stopped = (await _publish(publisher, [claimed])).stopped
        if isinstance(stopped, TransientError):
            doubted.append((claimed, stopped))
            if stopped.retry_after_seconds is not None:
                break
        elif stopped is not None:
            _set_aside(carried, claimed, stopped)
        else:
            carried.waiting.remove(claimed)
            carried.out.append(claimed)
            if not is_internal(
                claimed.event.name
            ):  # an internal one goes nowhere, and proves nothing
                for failed, error in doubted:
                    _set_aside(carried, failed, error)
                return
    carried.outage = doubted[0][1] if doubted else None


async def _publish_all(
    carried: _Publishing, publisher: EventPublisher, ends_at: float, beat: Callable[[], None]
) -> None:
    """It ends long before the claim does: afterwards somebody else may be at the same events."""
    while carried.waiting and carried.outage is None and time.monotonic() < ends_at:
        beat()
        published = await _publish(publisher, carried.waiting[:EVENTS_PER_CALL])
        carried.out += carried.waiting[: published.out]
        del carried.waiting[: published.out]
        if isinstance(published.stopped, TransientError):
            carried.outage = published.stopped
        elif published.stopped is not None:
            _set_aside(carried, carried.waiting[0], published.stopped)


async def _publish(publisher: EventPublisher, claims: list[ClaimedEvent]) -> PublishResult:
    try:
        return await publisher.publish([claimed.event for claimed in claims])
    except AutomationError as error:
        return PublishResult(0, error)
    except Exception as error:  # noqa: BLE001  a bug with one event does not stop the others
        return (
            PublishResult(0, error) if len(claims) == 1 else await _publish(publisher, claims[:1])
        )


def _set_aside(carried: _Publishing, failed: ClaimedEvent, error: Exception) -> None:
    carried.waiting.remove(failed)
    carried.failed.append((failed, f"{type(error).__name__}: {error}"))
    aggregate = failed.event.correlation_id
    carried.held_up += [
        claimed for claimed in carried.waiting if claimed.event.correlation_id == aggregate
    ]
    carried.waiting = [
        claimed for claimed in carried.waiting if claimed.event.correlation_id != aggregate
    ]


def _record_results(session: Session, worker: str, carried: _Publishing) -> None:
    lock_publishing(session)
    mark_published(session, worker, [claimed.id for claimed in carried.out])
    count_attempts(session, worker, [claimed.id for claimed, _ in carried.failed])
    for claimed, error in carried.failed:
        if claimed.attempt >= MAX_ATTEMPTS:
            park(session, worker, claimed.id, error=error)
        else:
            delay = _BACKOFF.delay(claimed.attempt, Random())
            put_back(session, worker, claimed.id, error=error, delay_seconds=delay)
    untried = [claimed.id for claimed in (*carried.waiting, *carried.held_up)]
    hand_back(session, worker, untried, error=str(carried.outage) if carried.outage else None)
    if carried.outage is not None:
        wait = carried.outage.retry_after_seconds or 0.0
        pause(
            session,
            PUBLISHER_PAUSE,
            first_seconds=FIRST_PAUSE_SECONDS,
            cap_seconds=LONGEST_PAUSE_SECONDS,
            at_least=wait,
        )
    elif carried.out:
        end_pause(session, PUBLISHER_PAUSE)


NOTIFICATIONS_AT_ONCE = 10
# Claims beyond the attempts that a message has: its delivery broke, or took its process with it.
MAX_BROKEN_DELIVERIES = 3


async def deliver_notifications(
    post: DeliveryServices,
    worker: str,
    *,
    database: Database,
    hold_seconds: float,
    caused_since: datetime | None = None,
) -> int:
    """How many were waiting, of the oldest few. At least once each: who dies between sending and
    writing it down has sent it for nothing, and the receiver can tell by its key."""
    with database.transaction() as session:
        claims = claim_waiting(
            session,
            worker,
            limit=NOTIFICATIONS_AT_ONCE,
            hold_seconds=hold_seconds,
            only=NOTIFICATION_EVENT,
            caused_since=caused_since,
        )
    if not claims:
        return 0
    with database.reading() as session:
        stored = unsent(
            session,
            [number for claimed in claims if (number := _notification_id(claimed)) is not None],
        )
    ended = await asyncio.gather(
        *(_deliver(claimed, stored, post, worker, database) for claimed in claims),
        return_exceptions=True,
    )
    for broken in ended:  # after the others are through: the database does not answer
        if broken is not None:
            raise broken
    return len(claims)


async def _deliver(
    claimed: ClaimedEvent,
    stored: Mapping[int, StoredNotification],
    post: DeliveryServices,
    worker: str,
    database: Database,
) -> None:
    message = stored.get(_notification_id(claimed) or 0)
    try:
        delivery = None if message is None else await _attempt(message, claimed.attempt, post)
    except (
        asyncio.CancelledError
    ):  # the relay's time is over: another one need not wait for the end of the hold
        with database.transaction() as session:
            put_back(session, worker, claimed.id, error=INTERRUPTED, delay_seconds=0)
        raise
    with database.transaction() as session:
        if message is not None and delivery is not None:
            record_notification_delivery(session, message.id, delivery, database_time(session))
        if delivery is not None and delivery.status is DeliveryStatus.PENDING:
            error, pause = delivery.error or "", delivery.pause_seconds
            put_back(session, worker, claimed.id, error=error, delay_seconds=pause)
        else:
            mark_published(session, worker, [claimed.id])


async def _attempt(message: StoredNotification, claims: int, post: DeliveryServices) -> Delivery:
    if claims > post.patience.attempts + MAX_BROKEN_DELIVERIES:
        return Delivery(
            DeliveryStatus.FAILED, message.attempts, error="Its delivery broke off every time"
        )
    return await attempt(_send(message, post), message.attempts + 1, post.patience)


async def _send(message: StoredNotification, post: DeliveryServices) -> WebhookAnswer | None:
    notification, payload = message.notification, message.notification.payload
    if notification.channel is NotificationChannel.WEBHOOK:
        body = body_of(payload)
        headers = webhook_headers(notification, body, post.secret, int(time.time()))
        return await post.webhooks.send(notification.target, body, headers)
    if post.mail is None:
        raise PermanentError("E-mail is not configured (set SMTP_HOST, and SMTP_FROM or SMTP_USER)")
    subject, text = str(payload["subject"]), str(payload["text"])
    await post.mail.send(notification.target, subject, text, delivery=notification.key)
    return None


def _notification_id(claimed: ClaimedEvent) -> int | None:
    number = claimed.event.payload.get("notification_id")
    return number if isinstance(number, int) else None


BUDGET_SECONDS = 20.0
# Longer than any batch takes, so that nobody else gets what is being carried.
HOLD_SECONDS = 120.0


@dataclass(frozen=True)
class RelayCounts:
    events: int
    messages: int


async def relay_events(
    post: DeliveryServices,
    *,
    database: Database,
    budget_seconds: float = BUDGET_SECONDS,
    hold_seconds: float = HOLD_SECONDS,
    beat: Callable[[], None] = lambda: None,
    caused_since: datetime | None = None,
) -> RelayCounts:
    """Nothing new is begun when the budget is used up: the last calls may take longer. Events,
    messages and webhooks of jobs are relayed concurrently, each until nothing waits, so that a slow
    receiver delays no other kind. `beat` is called now and then. With `caused_since`, only
    aggregates that have events from that instant on are relayed."""
    worker = f"relay-{uuid4().hex}"  # not the process: it may run two of us
    ends_at = time.monotonic() + budget_seconds

    async def drain(carry: Callable[[float], Coroutine[object, object, int]]) -> int:
        carried = 0
        while (left := ends_at - time.monotonic()) > 0 and _is_any_waiting(database, caused_since):
            count = await carry(left)
            if not count:
                break
            carried += count
        return carried

    def publish(left: float) -> Coroutine[object, object, int]:
        return publish_events(
            post.publisher,
            worker,
            database=database,
            hold_seconds=hold_seconds,
            budget_seconds=left,
            beat=beat,
            caused_since=caused_since,
        )

    def send(_: float) -> Coroutine[object, object, int]:
        return deliver_notifications(
            post, worker, database=database, hold_seconds=hold_seconds, caused_since=caused_since
        )

    def send_of_jobs(_: float) -> Coroutine[object, object, int]:
        return deliver_job_webhooks(post.webhooks, database=database, hold_seconds=hold_seconds)

    events, *messages = await _gather(drain(publish), drain(send), drain(send_of_jobs))
    return RelayCounts(events, sum(messages))


async def _gather(*works: Coroutine[object, object, int]) -> list[int]:
    ended = await asyncio.gather(*works, return_exceptions=True)
    for broken in ended:  # after the others are through
        if isinstance(broken, BaseException):
            raise broken
    return [count for count in ended if isinstance(count, int)]


def _is_any_waiting(database: Database, caused_since: datetime | None) -> bool:
    with database.reading() as session:
        return is_waiting(session, caused_since) or is_webhook_delivery_due(session)
