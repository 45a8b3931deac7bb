"""Events go out in their order; one that cannot be published holds up its own aggregate only, and
none is forgotten."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import select, update

from automation_pipeline.automation.ports import EventPublisher, PublishResult
from automation_pipeline.automation.relay import publish_events
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.events import Event, is_internal
from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow, claim_in_order, enqueue
from automation_pipeline_tests.automation.post import a_post_office, outbox, relay
from automation_pipeline_tests.fakes.post import FakePublisher, FakeWebhookSender
from automation_pipeline_tests.storage.processes import event

KEYS = [f"event {number}" for number in range(7)]
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
AWAY = TransientError("Pusher does not answer")


class BreaksOn(FakePublisher):
    """A call with one of these events in it is answered as if the publisher were away."""

    def __init__(self, *keys: str) -> None:
        super().__init__()
        self.keys = set(keys)

    async def publish(self, events: Sequence[Event]) -> PublishResult:
        if self.keys & {event.key for event in events}:
            return PublishResult(0, AWAY)
        return await super().publish(events)


class InternalGoes(FakePublisher):
    """It has nobody to show internal events to: they are out whether it is away or not."""

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
    return relay(a_post_office(FakeWebhookSender(), None, publisher), database).events


def make_due(database: Database) -> None:
    """As if the pauses of events, and of the publisher, were over; what is parked stays."""
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


def test_without_a_publisher_all_are_done_and_stay_on_record(database: Database) -> None:
    fill(database, [event(f"event {number}") for number in range(450)])
    assert publish(database, None) == 450
    assert {row.published_at is None for row in outbox(database, "run.completed")} == {False}


def test_they_go_out_once_and_in_their_order(database: Database) -> None:
    fill(database, [event(key) for key in KEYS])
    publisher = FakePublisher()
    assert (publish(database, publisher), publish(database, publisher)) == (7, 0)
    assert publisher.published == KEYS


def test_while_the_publisher_is_away_all_wait_in_their_order_and_it_is_left_alone(
    database: Database,
) -> None:
    fill(database, [event(key) for key in KEYS])
    publisher = FakePublisher(outage=AWAY)
    lengths = []
    for _ in range(8):
        assert publish(database, publisher) == publish(database, publisher) == 0
        lengths.append(pause_seconds(database))
        make_due(database)
    assert (publisher.asked, lengths) == (8, [2, 4, 8, 16, 32, 60, 60, 60])
    assert {(row.attempts, row.last_error, row.claimed_by) for row in waiting(database)} == {
        (0, str(AWAY), None)
    }
    publisher.outage = None
    assert publish(database, publisher) == 7
    assert (publisher.published, pause_seconds(database)) == (KEYS, None)


def test_the_publisher_may_ask_for_a_longer_pause(database: Database) -> None:
    fill(database, [event("a")])
    publish(database, FakePublisher(outage=TransientError("429", retry_after_seconds=25)))
    assert pause_seconds(database) == 25


def test_an_outage_in_the_middle_tears_nothing_apart(database: Database) -> None:
    fill(database, [event(f"event {number}") for number in range(50)])
    publisher = FakePublisher(poison={"event 33": AWAY})
    assert publish(database, publisher) == 33
    publisher.poison = {}
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
    publisher = FakePublisher(poison={"b1": problem})
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


def test_a_bug_that_breaks_every_batch_with_one_event_in_it_is_found(database: Database) -> None:
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


def test_no_event_is_published_shortly_before_the_claim_ends(database: Database) -> None:
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
    assert publisher.published == [
        "a1",
        "d1",
    ]  # nothing else waits that could show that it is no outage
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


@pytest.mark.parametrize("outage", [AWAY, TransientError("429", retry_after_seconds=1)])
def test_an_outage_does_not_count_as_an_attempt(database: Database, outage: TransientError) -> None:
    internal = replace(event("internal", "z"), name="automation/completed")
    fill(database, [*(event(key, key) for key in KEYS), internal])
    publisher = InternalGoes(outage=outage)
    for _ in range(30):
        publish(database, publisher)
        make_due(database)
    assert {(row.attempts, row.last_error) for row in waiting(database)} == {(0, str(outage))}
    publisher.outage = None
    publish(database, publisher)
    assert [key for key in publisher.published if key != "internal"] == KEYS


def test_workers_that_die_use_up_no_attempt(database: Database) -> None:
    fill(database, [event("a")])
    for number in range(6):
        with database.transaction() as session:
            claim_in_order(session, f"dead {number}", limit=1, hold_seconds=-1.0, but="other")
    publish(database, FakePublisher(poison={"a": PermanentError("refused")}))
    [row] = waiting(database)
    assert (row.attempts, row.available_at.year) == (1, datetime.now(UTC).year)
    make_due(database)
    assert publish(database, FakePublisher()) == 1


def test_nothing_starts_after_the_budget_and_each_call_beats(
    database: Database,
) -> None:
    fill(database, [event(f"event {number}") for number in range(60)])
    beats: list[int] = []
    publisher = FakePublisher()

    def publish_for(seconds: float) -> int:
        stage = publish_events(
            publisher, "anna", database=database, hold_seconds=60, budget_seconds=seconds,
            beat=lambda: beats.append(len(publisher.published)),
        )  # fmt: skip
        return asyncio.run(stage)

    assert (publish_for(0), publisher.published) == (0, [])
    assert (publish_for(60), beats) == (60, [0, 10, 20, 30, 40, 50])
