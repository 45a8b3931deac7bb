"""The relay as a whole: over real sockets, by several processes, killed in the middle, and out of
time."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pytest

from automation_pipeline.automation.ports import PublishResult
from automation_pipeline.automation.relay import relay_events
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.events import Event
from automation_pipeline.core.webhooks import WebhookAnswer
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline_tests.automation.post import (
    a_post_office,
    an_ended_run,
    outbox,
    records,
    relay,
)
from automation_pipeline_tests.automation.processes import client, relay_all
from automation_pipeline_tests.clients.receiver import Receiver, receiver, says
from automation_pipeline_tests.fakes.post import FakePublisher, FakeWebhookSender
from automation_pipeline_tests.processes import CREW, at_once
from automation_pipeline_tests.storage.processes import event
from automation_pipeline_tests.waiting import wait_until

DIE = """
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


def test_messages_and_events_leave_together(
    database: Database, clock: Clock, hook: Receiver
) -> None:
    an_ended_run(database, clock, webhookUrl=f"{hook.url}/a")
    with database.transaction() as session:
        enqueue(session, [event("a"), event("b")])
    publisher = FakePublisher()
    relayed = relay(a_post_office(client(hook.url), None, publisher), database)
    assert (relayed.events, relayed.messages) == (len(publisher.published), 1)
    assert publisher.published[-2:] == ["a", "b"]
    assert [call.path for call in hook.calls] == ["/a"]


def test_a_receiver_that_recovers_gets_its_message(
    database: Database, clock: Clock, hook: Receiver
) -> None:
    an_ended_run(database, clock, webhookUrl=hook.url)
    hook.answer(says(503, "busy"), says(429), says(202, "late but here"))
    relay(a_post_office(client(hook.url)), database)
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
        an_ended_run(database, clock, webhookUrl=hook.url)
    carried = at_once(relay_all, *((database_url, hook.url) for _ in range(CREW)))
    assert sum(carried) == 25
    assert (len(deliveries(hook)), set(deliveries(hook).values())) == (25, {1})
    assert {(row.status, row.attempts) for row in records(database)} == {("sent", 1)}


def test_a_kill_between_sending_and_recording_repeats_the_message_with_the_same_key(
    database: Database, database_url: str, clock: Clock, hook: Receiver
) -> None:
    [run] = an_ended_run(database, clock, webhookUrl=hook.url)
    killed = subprocess.run([sys.executable, "-c", DIE, database_url, hook.url], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (deliveries(hook), records(database)[0].status) == ({run.key: 1}, "pending")
    post = a_post_office(client(hook.url))
    wait_until(lambda: relay(post, database).messages == 1)
    assert deliveries(hook) == {run.key: 2}
    assert len({call.body for call in hook.calls}) == 1
    assert records(database)[0].status == "sent"


def test_a_message_that_always_kills_its_relay_is_given_up(
    database: Database, clock: Clock
) -> None:
    an_ended_run(database, clock)
    with database.transaction() as session:
        session.merge(outbox(database)[0]).attempts = 6
    webhooks = FakeWebhookSender()
    relay(a_post_office(webhooks, attempts=3), database)
    [row] = records(database)
    assert (row.status, row.last_error, webhooks.posted) == (
        "failed",
        "Its delivery broke off every time",
        [],
    )


def test_nothing_starts_after_the_budget_is_used_up(database: Database, clock: Clock) -> None:
    an_ended_run(database, clock)
    webhooks = FakeWebhookSender()
    assert relay(a_post_office(webhooks), database, budget_seconds=0).messages == 0
    assert webhooks.posted == []
    assert outbox(database)[0].attempts == 0


def test_a_slow_publisher_keeps_to_the_budget_and_messages_leave_beside_it(
    database: Database, clock: Clock
) -> None:
    class Slow(FakePublisher):
        async def publish(self, events: Sequence[Event]) -> PublishResult:
            await asyncio.sleep(1.2)
            return await super().publish(events)

    an_ended_run(database, clock)
    with database.transaction() as session:
        enqueue(session, [event(str(number)) for number in range(500)])
    publisher, webhooks, beats = Slow(), FakeWebhookSender(), list[None]()
    post = a_post_office(webhooks, None, publisher)
    relayed = asyncio.run(
        relay_events(
            post,
            database=database,
            budget_seconds=3.0,
            hold_seconds=120,
            beat=lambda: beats.append(None),
        )
    )
    assert 0 < relayed.events <= 50
    assert (len(beats), relayed.messages, len(webhooks.posted)) == (publisher.asked, 1, 1)


class Hanging(FakeWebhookSender):
    """A receiver that accepts the call and does not answer."""

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        await super().send(url, body, headers)
        await asyncio.sleep(3600)
        raise AssertionError


def test_a_receiver_that_hangs_delays_no_event_and_is_called_again_at_once(
    database: Database, clock: Clock
) -> None:
    an_ended_run(database, clock)
    with database.transaction() as session:
        enqueue(session, [event(str(number)) for number in range(500)])
    publisher, hanging, recovered = FakePublisher(), Hanging(), FakeWebhookSender()

    async def relay_for_a_moment() -> None:
        async with asyncio.timeout(3):
            await relay_events(
                a_post_office(hanging, None, publisher, attempt_seconds=60), database=database
            )

    with pytest.raises(TimeoutError):
        asyncio.run(relay_for_a_moment())
    assert len(hanging.posted) == 1
    assert len(publisher.published) >= 500
    assert relay(a_post_office(recovered, None, publisher), database).messages == 1
    assert [posted.body for posted in recovered.posted] == [
        posted.body for posted in hanging.posted
    ]
    assert records(database)[0].status == "sent"
