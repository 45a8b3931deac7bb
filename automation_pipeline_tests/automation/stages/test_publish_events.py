"""Events go out in their order; one that cannot be published stops no other, and none is forgotten."""

from datetime import UTC, datetime

from automation_pipeline.automation.ports import EventPublisher
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline_tests.automation.stages.post import a_post_office, outbox, relay
from automation_pipeline_tests.fakes.post import FakePublisher, FakeWebhookSender
from automation_pipeline_tests.storage.processes import event

KEYS = [f"event {number}" for number in range(7)]


def fill(database: Database, keys: list[str] = KEYS) -> None:
    with database.transaction() as session:
        enqueue(session, [event(key) for key in keys])


def publish(database: Database, publisher: EventPublisher | None) -> int:
    return relay(a_post_office(FakeWebhookSender(), None, publisher), database).events


def test_without_a_publisher_all_are_done_and_stay_on_record(database: Database) -> None:
    fill(database, [f"event {number}" for number in range(450)])
    assert publish(database, None) == 450
    assert {row.published_at is None for row in outbox(database, "run.completed")} == {False}


def test_they_go_out_once_and_in_their_order(database: Database) -> None:
    fill(database)
    publisher = FakePublisher()
    assert (publish(database, publisher), publish(database, publisher)) == (7, 0)
    assert publisher.published == KEYS


def test_while_the_publisher_is_away_all_wait_in_their_order(database: Database) -> None:
    class Away(FakePublisher):
        async def publish(self, events: object) -> None:
            raise TransientError("Pusher does not answer")

    fill(database)
    for _ in range(12):
        assert publish(database, Away()) == 0
    assert {(row.published_at, row.last_error) for row in outbox(database, "run.completed")} == {
        (None, "Pusher does not answer")
    }
    publisher = FakePublisher()
    publish(database, publisher)
    assert publisher.published == KEYS


def test_an_event_that_cannot_be_published_is_told_apart_and_parked(database: Database) -> None:
    fill(database)
    publisher = FakePublisher(poison={KEYS[2]: PermanentError("too big"), KEYS[5]: ZeroDivisionError("a bug")})
    assert publish(database, publisher) == 5
    assert publisher.published == [key for key in KEYS if key not in publisher.poison]
    waiting = [row for row in outbox(database, "run.completed") if row.published_at is None]
    assert [row.last_error for row in waiting] == ["PermanentError: too big", "ZeroDivisionError: a bug"]
    for _ in range(10):
        make_due(database)
        publish(database, publisher)
    parked = [row for row in outbox(database, "run.completed") if row.published_at is None]
    assert [(row.attempts, row.available_at.year) for row in parked] == [(5, 9000)] * 2


def make_due(database: Database) -> None:
    """As if the pauses were over; what is parked stays."""
    with database.transaction() as session:
        for row in outbox(database, "run.completed"):
            if row.available_at.year < 9000:
                session.merge(row).available_at = datetime(2020, 1, 1, tzinfo=UTC)
