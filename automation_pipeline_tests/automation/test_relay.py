"""The relay: events, notifications, and the budget that they share."""

import asyncio
import hashlib
import hmac
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from automation_pipeline.automation.ports import EventPublisher, PublishResult
from automation_pipeline.automation.relay import publish_events, relay_events
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.events import Event, is_internal
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.webhooks import WebhookAnswer
from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow, claim_in_order, enqueue
from automation_pipeline_tests.automation.post import (
    HOOK,
    delivery_services,
    make_ended_run,
    outbox,
    records,
    relay,
)
from automation_pipeline_tests.automation.processes import client, relay_all
from automation_pipeline_tests.clients.receiver import Receiver, receiver, respond
from automation_pipeline_tests.fakes.senders import (
    ACCEPTED,
    FakeMailSender,
    FakePublisher,
    FakeWebhookSender,
)
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes
from automation_pipeline_tests.storage.processes import event
from automation_pipeline_tests.waiting import wait_until

KEYS = [f"event {number}" for number in range(7)]
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
OUTAGE = TransientError("Pusher does not answer")


class BreaksOn(FakePublisher):
    """Reports an outage if a batch contains one of these events."""

    def __init__(self, *keys: str) -> None:
        super().__init__()
        self.keys = set(keys)

    async def publish(self, events: Sequence[Event]) -> PublishResult:
        if self.keys & {event.key for event in events}:
            return PublishResult(0, OUTAGE)
        return await super().publish(events)


class SkipsInternal(FakePublisher):
    """Counts internal events as published without sending them, even during an outage."""

    async def publish(self, events: Sequence[Event]) -> PublishResult:
        if is_internal(events[0].name):
            self.published.append(events[0].key)
            rest = await self.publish(events[1:]) if len(events) > 1 else PublishResult(0)
            return PublishResult(1 + rest.out, rest.stopped)
        return await super().publish(events)


def fill(database: Database, events: Sequence[Event]) -> None:
    with database.transaction() as session:
        enqueue(session, events)


def publish(database: Database, publisher: EventPublisher | None) -> int:
    return relay(delivery_services(FakeWebhookSender(), None, publisher), database).events


def make_due(database: Database) -> None:
    """End the pauses of events and of the publisher; keep parked events."""
    with database.transaction() as session:
        session.execute(update(OutboxRow).where(OutboxRow.available_at < datetime(8000, 1, 1, tzinfo=UTC)).values(
            available_at=LONG_AGO))  # fmt: skip
        for lease in session.scalars(select(LeaseRow).where(LeaseRow.key == "pause:publisher")):
            length = lease.expires_at - lease.acquired_at
            lease.acquired_at, lease.expires_at = lease.acquired_at - length, lease.acquired_at


def pause_seconds(database: Database) -> float | None:
    with database.reading() as session:
        row = session.get(LeaseRow, "pause:publisher")
        return None if row is None else round((row.expires_at - row.acquired_at).total_seconds(), 1)


def waiting(database: Database) -> list[OutboxRow]:
    return [row for row in outbox(database, "run.completed") if row.published_at is None]


def test_without_a_publisher_events_are_marked_published_and_kept(database: Database) -> None:
    fill(database, [event(f"event {number}") for number in range(450)])
    assert publish(database, None) == 450
    assert {row.published_at is None for row in outbox(database, "run.completed")} == {False}


def test_events_are_published_once_and_in_order(database: Database) -> None:
    fill(database, [event(key) for key in KEYS])
    publisher = FakePublisher()
    assert (publish(database, publisher), publish(database, publisher)) == (7, 0)
    assert publisher.published == KEYS


def test_during_a_publisher_outage_events_wait_in_order_without_further_calls(
    database: Database,
) -> None:
    fill(database, [event(key) for key in KEYS])
    publisher = FakePublisher(outage=OUTAGE)
    lengths = []
    for _ in range(8):
        assert publish(database, publisher) == publish(database, publisher) == 0
        lengths.append(pause_seconds(database))
        make_due(database)
    assert (publisher.attempts, lengths) == (8, [2, 4, 8, 16, 32, 60, 60, 60])
    assert {(row.attempts, row.last_error, row.claimed_by) for row in waiting(database)} == {
        (0, str(OUTAGE), None)
    }
    publisher.outage = None
    assert publish(database, publisher) == 7
    assert (publisher.published, pause_seconds(database)) == (KEYS, None)


def test_a_retry_after_of_the_publisher_extends_the_pause(database: Database) -> None:
    fill(database, [event("a")])
    publish(database, FakePublisher(outage=TransientError("429", retry_after_seconds=25)))
    assert pause_seconds(database) == 25


def test_an_outage_during_a_batch_preserves_the_event_order(database: Database) -> None:
    fill(database, [event(f"event {number}") for number in range(50)])
    publisher = FakePublisher(refused={"event 33": OUTAGE})
    assert publish(database, publisher) == 33
    publisher.refused = {}
    make_due(database)
    assert publish(database, publisher) == 17
    assert publisher.published == [f"event {number}" for number in range(50)]


@pytest.mark.parametrize("problem", [PermanentError("too big"), ZeroDivisionError("a bug")])
def test_an_event_that_cannot_be_published_blocks_its_aggregate_until_it_is_parked(
    database: Database, problem: Exception
) -> None:
    fill(
        database,
        [event("a1", "a"), event("b1", "b"), event("b2", "b"), event("a2", "a"), event("b3", "b")],
    )
    publisher = FakePublisher(refused={"b1": problem})
    assert publish(database, publisher) == 2
    fill(database, [event("b4", "b"), event("a3", "a")])
    for _ in range(4):
        publish(database, publisher)
        assert publisher.published == ["a1", "a2", "a3"]
        make_due(database)
        publish(database, publisher)
    assert publish(database, publisher) == 3
    assert publisher.published == ["a1", "a2", "a3", "b2", "b3", "b4"]
    [parked] = waiting(database)
    assert (parked.event_key, parked.attempts, parked.available_at.year) == ("b1", 5, 9000)
    assert parked.last_error == f"{type(problem).__name__}: {problem}"


def test_an_event_that_breaks_every_batch_is_isolated(database: Database) -> None:
    class Breaks(FakePublisher):
        async def publish(self, events: Sequence[Event]) -> PublishResult:
            if any(event.key == "b" for event in events):
                raise KeyError("b")
            return await super().publish(events)

    fill(database, [event(key, key) for key in "abcd"])
    publisher = Breaks()
    assert publish(database, publisher) == 3
    assert publisher.published == ["a", "c", "d"]
    assert [row.last_error for row in waiting(database)] == ["KeyError: 'b'"]


def test_an_error_that_a_publisher_raises_counts_like_one_that_it_returns(
    database: Database,
) -> None:
    class Raises(FakePublisher):
        error: Exception = OUTAGE

        async def publish(self, events: Sequence[Event]) -> PublishResult:
            raise self.error

    fill(database, [event("a")])
    publisher = Raises()
    assert publish(database, publisher) == 0
    assert [(row.attempts, row.last_error) for row in waiting(database)] == [(0, str(OUTAGE))]
    make_due(database)
    publisher.error = PermanentError("refused")
    assert publish(database, publisher) == 0
    assert [(row.attempts, row.last_error) for row in waiting(database)] == [
        (1, "PermanentError: refused")
    ]


def test_an_error_of_one_queue_is_raised_after_the_others_are_done(
    database: Database, clock: Clock
) -> None:
    make_ended_run(database, clock)
    fill(database, [event("a")])

    def broken_beat() -> None:
        raise ZeroDivisionError

    webhooks = FakeWebhookSender()
    services = delivery_services(webhooks, None, FakePublisher())
    with pytest.raises(ZeroDivisionError):
        asyncio.run(relay_events(services, database=database, beat=broken_beat))
    assert len(webhooks.posted) == 1


def test_a_probe_of_several_aggregates_ends_with_the_budget(database: Database) -> None:
    class SlowOutage(FakePublisher):
        async def publish(self, events: Sequence[Event]) -> PublishResult:
            await asyncio.sleep(0.1)
            return await super().publish(events)

    fill(database, [event(key, key) for key in "abc"])
    with database.transaction() as session:
        claim_in_order(session, "crashed", limit=9, hold_seconds=-1.0, except_name="other")
    publisher = SlowOutage(outage=OUTAGE)
    publishing = publish_events(
        publisher, "anna", database=database, hold_seconds=60, budget_seconds=0.05
    )
    assert (asyncio.run(publishing), publisher.attempts) == (0, 1)
    assert {(row.claimed_by, row.last_error) for row in waiting(database)} == {(None, str(OUTAGE))}


def test_an_interrupted_relay_records_published_events(database: Database) -> None:
    class Interrupted(FakePublisher):
        async def publish(self, events: Sequence[Event]) -> PublishResult:
            if self.published:
                raise asyncio.CancelledError
            return await super().publish(events)

    fill(database, [event(f"event {number}") for number in range(25)])
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(publish_events(Interrupted(), "anna", database=database, hold_seconds=60))
    assert [row.event_key for row in waiting(database)] == [
        f"event {number}" for number in range(10, 25)
    ]
    publisher = FakePublisher()
    assert publish(database, publisher) == 15


def test_no_event_is_published_shortly_before_the_claim_expires(database: Database) -> None:
    class Slow(FakePublisher):
        async def publish(self, events: Sequence[Event]) -> PublishResult:
            await asyncio.sleep(0.2)
            return await super().publish(events)

    fill(database, [event(f"event {number}") for number in range(60)])
    publisher = Slow()
    out = asyncio.run(publish_events(publisher, "anna", database=database, hold_seconds=0.3))
    assert (out, len(publisher.published)) == (10, 10)
    assert {row.claimed_by for row in waiting(database)} == {None}


def test_an_event_that_breaks_the_publisher_is_parked(
    database: Database,
) -> None:
    fill(database, [event(key, key[0]) for key in ("a1", "b1", "b2", "c1", "d1")])
    publisher = BreaksOn("b1", "c1")
    for _ in range(40):
        publish(database, publisher)
        make_due(database)
    # No other event can show that the publisher works.
    assert publisher.published == [
        "a1",
        "d1",
    ]
    for number in range(20):
        fill(database, [event(f"later {number}", f"later {number}")])
        publish(database, publisher)
        make_due(database)
    assert [(row.event_key, row.attempts, row.available_at.year) for row in waiting(database)] == [
        ("b1", 5, 9000),
        ("c1", 5, 9000),
    ]
    assert set(publisher.published) == {
        "a1",
        "d1",
        "b2",
        *(f"later {number}" for number in range(20)),
    }


@pytest.mark.parametrize("outage", [OUTAGE, TransientError("429", retry_after_seconds=1)])
def test_an_outage_does_not_count_as_an_attempt(database: Database, outage: TransientError) -> None:
    internal = replace(event("internal", "z"), name="automation/completed")
    fill(database, [*(event(key, key) for key in KEYS), internal])
    publisher = SkipsInternal(outage=outage)
    for _ in range(30):
        publish(database, publisher)
        make_due(database)
    assert {(row.attempts, row.last_error) for row in waiting(database)} == {(0, str(outage))}
    publisher.outage = None
    publish(database, publisher)
    assert [key for key in publisher.published if key != "internal"] == KEYS


def test_worker_crashes_do_not_count_as_attempts(database: Database) -> None:
    fill(database, [event("a")])
    for number in range(6):
        with database.transaction() as session:
            claim_in_order(
                session, f"dead {number}", limit=1, hold_seconds=-1.0, except_name="other"
            )
    publish(database, FakePublisher(refused={"a": PermanentError("refused")}))
    [row] = waiting(database)
    assert (row.attempts, row.available_at.year) == (1, datetime.now(UTC).year)
    make_due(database)
    assert publish(database, FakePublisher()) == 1


def test_each_call_sends_a_heartbeat_and_none_starts_after_the_budget(
    database: Database,
) -> None:
    fill(database, [event(f"event {number}") for number in range(60)])
    beats: list[int] = []
    publisher = FakePublisher()

    def publish_for(seconds: float) -> int:
        publishing = publish_events(
            publisher, "anna", database=database, hold_seconds=60, budget_seconds=seconds,
            beat=lambda: beats.append(len(publisher.published)),
        )  # fmt: skip
        return asyncio.run(publishing)

    assert (publish_for(0), publisher.published) == (0, [])
    assert (publish_for(60), beats) == (60, [0, 10, 20, 30, 40, 50])


EMAILS = ["anna@example.com", "bert@example.com"]


def test_a_webhook_is_signed_and_sent_once(database: Database, clock: Clock) -> None:
    [run] = make_ended_run(database, clock, ["5"])
    webhooks = FakeWebhookSender()
    for _ in range(2):
        relay(delivery_services(webhooks), database)
    [posted] = webhooks.posted
    assert posted.url == HOOK
    assert json.loads(posted.body) == run.payload
    assert posted.headers["X-Automation-Delivery"] == run.key
    stamp, mac = (
        part.partition("=")[2] for part in posted.headers["X-Automation-Signature"].split(",")
    )
    assert (
        mac == hmac.new(b"s3cret", f"{stamp}.".encode() + posted.body, hashlib.sha256).hexdigest()
    )
    [row] = records(database)
    assert (row.status, row.attempts, row.status_code, row.response_body) == (
        "sent",
        1,
        200,
        "thanks",
    )
    assert row.sent_at is not None
    assert outbox(database)[0].published_at is not None


def test_each_receiver_gets_one_email(database: Database, clock: Clock) -> None:
    run = make_ended_run(database, clock, webhookUrl=None, notifyEmails=EMAILS)
    mail = FakeMailSender()
    relay(delivery_services(FakeWebhookSender(), mail), database)
    assert sorted(mail.sent) == [
        (each.target, each.payload["subject"], each.payload["text"], each.key) for each in run
    ]
    assert [(row.status, row.attempts) for row in records(database)] == [("sent", 1)] * 2


def test_transient_delivery_errors_are_retried_and_the_result_is_stored(
    database: Database, clock: Clock
) -> None:
    make_ended_run(database, clock)
    webhooks = FakeWebhookSender([WebhookAnswer(503, "busy"), TransientError("silent"), ACCEPTED])
    relay(delivery_services(webhooks), database)
    assert len(webhooks.posted) == 3
    assert len({posted.headers["X-Automation-Delivery"] for posted in webhooks.posted}) == 1
    assert len({posted.body for posted in webhooks.posted}) == 1
    [row] = records(database)
    assert (row.status, row.attempts, row.status_code, row.last_error) == ("sent", 3, 200, None)


def test_a_delivery_fails_permanently_after_the_last_attempt(
    database: Database, clock: Clock
) -> None:
    make_ended_run(database, clock)
    webhooks = FakeWebhookSender([WebhookAnswer(503, "busy")])
    relay(delivery_services(webhooks, attempts=3), database)
    assert len(webhooks.posted) == 3
    [row] = records(database)
    assert (row.status, row.attempts, row.status_code, row.response_body) == (
        "failed",
        3,
        503,
        "busy",
    )
    assert (row.last_error, row.sent_at) == ("The receiver answered 503", None)
    assert relay(delivery_services(webhooks), database).messages == 0


@pytest.mark.parametrize(
    "refusal", [WebhookAnswer(404, "who"), PermanentError("webhookUrl IP not allowed")]
)
def test_permanent_delivery_errors_are_not_retried(
    database: Database, clock: Clock, refusal: WebhookAnswer | Exception
) -> None:
    make_ended_run(database, clock)
    webhooks = FakeWebhookSender([refusal])
    relay(delivery_services(webhooks), database)
    [row] = records(database)
    assert (row.status, row.attempts, len(webhooks.posted)) == ("failed", 1, 1)


def test_a_failed_delivery_waits_before_the_next_attempt(database: Database, clock: Clock) -> None:
    make_ended_run(database, clock)
    webhooks = FakeWebhookSender([WebhookAnswer(503, "busy")])
    services = delivery_services(webhooks, backoff=Backoff(base_seconds=10, cap_seconds=3600))
    for _ in range(2):
        relay(services, database)
    assert len(webhooks.posted) == 1
    [event], [row] = outbox(database), records(database)
    assert event.available_at - clock.now() > timedelta(seconds=10)
    assert (event.last_error, row.status, row.attempts) == (
        "The receiver answered 503",
        "pending",
        1,
    )


def test_an_email_without_a_mail_server_fails_with_the_reason(
    database: Database, clock: Clock
) -> None:
    make_ended_run(database, clock, webhookUrl=None, notifyEmails=EMAILS[:1])
    relay(delivery_services(FakeWebhookSender(), None), database)
    [row] = records(database)
    assert (row.status, row.attempts) == ("failed", 1)
    assert row.last_error == "E-mail is not configured (set SMTP_HOST, and SMTP_FROM or SMTP_USER)"


def test_a_bug_in_one_delivery_does_not_stop_others_and_ends_after_its_attempts(
    database: Database, clock: Clock
) -> None:
    bad = "https://bad.example.com/"
    for url in (HOOK, bad, HOOK):
        make_ended_run(database, clock, webhookUrl=url)
    webhooks = FakeWebhookSender(by_url={bad: ZeroDivisionError("s3cret of the body")})
    relay(delivery_services(webhooks), database)
    first, broken, last = records(database)
    assert (first.status, last.status) == ("sent", "sent")
    assert (broken.status, broken.attempts, broken.last_error) == (
        "failed",
        3,
        "A bug: ZeroDivisionError",
    )


def test_a_receiver_that_never_answers_does_not_delay_others(
    database: Database, clock: Clock
) -> None:
    slow = "https://slow.example.com/"
    for url in (slow, HOOK):
        make_ended_run(database, clock, webhookUrl=url)

    class Slow(FakeWebhookSender):
        async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
            if url == slow:
                await asyncio.Event().wait()
            return await super().send(url, body, headers)

    relay(delivery_services(Slow(), attempts=1, attempt_seconds=0.05), database)
    waited, sent = records(database)
    assert (waited.status, waited.last_error) == (
        "failed",
        "The receiver did not answer within 0.05 s",
    )
    assert sent.status == "sent"


def test_an_event_without_its_message_counts_as_published(database: Database, clock: Clock) -> None:
    make_ended_run(database, clock)
    with database.transaction() as session:
        session.delete(session.merge(records(database)[0]))
    webhooks = FakeWebhookSender()
    relay(delivery_services(webhooks), database)
    assert webhooks.posted == []
    assert outbox(database)[0].published_at is not None


SCRIPT_THAT_DIES = """
import sys
from automation_pipeline_tests.automation.processes import relay_and_die
relay_and_die(sys.argv[1], sys.argv[2], 0.3)
"""


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


def deliveries(hook: Receiver) -> Counter[str]:
    return Counter(call.headers["X-Automation-Delivery"] for call in hook.calls)


def test_one_relay_sends_both_messages_and_events(
    database: Database, clock: Clock, hook: Receiver
) -> None:
    make_ended_run(database, clock, webhookUrl=f"{hook.url}/a")
    with database.transaction() as session:
        enqueue(session, [event("a"), event("b")])
    publisher = FakePublisher()
    relayed = relay(delivery_services(client(hook.url), None, publisher), database)
    assert (relayed.events, relayed.messages) == (len(publisher.published), 1)
    assert publisher.published[-2:] == ["a", "b"]
    assert [call.path for call in hook.calls] == ["/a"]


def test_a_receiver_that_recovers_gets_its_message(
    database: Database, clock: Clock, hook: Receiver
) -> None:
    make_ended_run(database, clock, webhookUrl=hook.url)
    hook.answer(respond(503, "busy"), respond(429), respond(202, "late but here"))
    relay(delivery_services(client(hook.url)), database)
    [row] = records(database)
    assert (row.status, row.attempts, row.status_code, row.response_body) == (
        "sent",
        3,
        202,
        "late but here",
    )
    assert list(deliveries(hook).values()) == [3]


def test_several_processes_send_each_message_once(
    database: Database, database_url: str, clock: Clock, hook: Receiver
) -> None:
    for _ in range(25):
        make_ended_run(database, clock, webhookUrl=hook.url)
    sent = run_in_processes(relay_all, *((database_url, hook.url) for _ in range(PROCESS_COUNT)))
    assert sum(sent) == 25
    assert (len(deliveries(hook)), set(deliveries(hook).values())) == (25, {1})
    assert {(row.status, row.attempts) for row in records(database)} == {("sent", 1)}


def test_a_crash_between_sending_and_recording_resends_with_the_same_key(
    database: Database, database_url: str, clock: Clock, hook: Receiver
) -> None:
    [run] = make_ended_run(database, clock, webhookUrl=hook.url)
    killed = subprocess.run(
        [sys.executable, "-c", SCRIPT_THAT_DIES, database_url, hook.url], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert (deliveries(hook), records(database)[0].status) == ({run.key: 1}, "pending")
    services = delivery_services(client(hook.url))
    wait_until(lambda: relay(services, database).messages == 1)
    assert deliveries(hook) == {run.key: 2}
    assert len({call.body for call in hook.calls}) == 1
    assert records(database)[0].status == "sent"


def test_a_message_that_always_crashes_the_relay_is_abandoned(
    database: Database, clock: Clock
) -> None:
    make_ended_run(database, clock)
    with database.transaction() as session:
        session.merge(outbox(database)[0]).attempts = 6
    webhooks = FakeWebhookSender()
    relay(delivery_services(webhooks, attempts=3), database)
    [row] = records(database)
    assert (row.status, row.last_error, webhooks.posted) == (
        "failed",
        "Its delivery broke off every time",
        [],
    )


def test_no_delivery_starts_after_the_budget_is_used_up(database: Database, clock: Clock) -> None:
    make_ended_run(database, clock)
    webhooks = FakeWebhookSender()
    assert relay(delivery_services(webhooks), database, budget_seconds=0).messages == 0
    assert webhooks.posted == []
    assert outbox(database)[0].attempts == 0


def test_a_slow_publisher_stays_within_the_budget_and_does_not_delay_messages(
    database: Database, clock: Clock
) -> None:
    class Slow(FakePublisher):
        async def publish(self, events: Sequence[Event]) -> PublishResult:
            await asyncio.sleep(1.2)
            return await super().publish(events)

    make_ended_run(database, clock)
    with database.transaction() as session:
        enqueue(session, [event(str(number)) for number in range(500)])
    publisher, webhooks, beats = Slow(), FakeWebhookSender(), list[None]()
    services = delivery_services(webhooks, None, publisher)
    relayed = asyncio.run(
        relay_events(
            services,
            database=database,
            budget_seconds=3.0,
            hold_seconds=120,
            beat=lambda: beats.append(None),
        )
    )
    assert 0 < relayed.events <= 50
    assert (len(beats), relayed.messages, len(webhooks.posted)) == (publisher.attempts, 1, 1)


class Hanging(FakeWebhookSender):
    """A receiver that accepts the request and never answers."""

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        await super().send(url, body, headers)
        await asyncio.sleep(3600)
        raise AssertionError


def test_a_hanging_receiver_delays_no_events_and_is_retried_immediately(
    database: Database, clock: Clock
) -> None:
    make_ended_run(database, clock)
    with database.transaction() as session:
        enqueue(session, [event(str(number)) for number in range(500)])
    publisher, hanging, recovered = FakePublisher(), Hanging(), FakeWebhookSender()

    async def relay_for_a_moment() -> None:
        async with asyncio.timeout(3):
            await relay_events(
                delivery_services(hanging, None, publisher, attempt_seconds=60), database=database
            )

    with pytest.raises(TimeoutError):
        asyncio.run(relay_for_a_moment())
    assert len(hanging.posted) == 1
    assert len(publisher.published) >= 500
    assert relay(delivery_services(recovered, None, publisher), database).messages == 1
    assert [posted.body for posted in recovered.posted] == [
        posted.body for posted in hanging.posted
    ]
    assert records(database)[0].status == "sent"
