"""The path from the outbox to the simulated Pusher: after an outage, and with concurrent relays."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import event as listening
from sqlalchemy import func, select, update

from automation_pipeline.automation.ports import EventPublisher
from automation_pipeline.automation.relay import relay_events
from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow, enqueue
from automation_pipeline_tests.automation.post import delivery_services
from automation_pipeline_tests.clients.pusher.processes import LONG_AGO, relay_until_all_published
from automation_pipeline_tests.clients.pusher.pusher_client import channels
from automation_pipeline_tests.fakes.senders import FakeWebhookSender
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes
from automation_pipeline_tests.simulator_control import (
    PUSHER_SECRET,
    add_faults,
    published_events,
    reset,
)
from automation_pipeline_tests.storage.processes import event


def fill(database: Database, events: int, aggregates: int) -> None:
    with database.transaction() as session:
        enqueue(
            session,
            [event(str(number), f"run {number % aggregates}", job_id=f"run {number % aggregates}")
             for number in range(events)],
        )  # fmt: skip


def relay(database: Database, publisher: EventPublisher) -> int:
    post = delivery_services(FakeWebhookSender(), None, publisher)
    return asyncio.run(
        relay_events(post, database=database, budget_seconds=120, hold_seconds=120)
    ).events


def unpublished(database: Database) -> int:
    with database.reading() as session:
        left = select(func.count()).select_from(OutboxRow).where(OutboxRow.published_at.is_(None))
        return session.scalars(left).one()


def end_pause(database: Database) -> None:
    with database.transaction() as session:
        session.execute(update(LeaseRow).values(acquired_at=LONG_AGO, expires_at=LONG_AGO))


def first_publications(shown: Sequence[dict[str, object]]) -> list[int]:
    """Event numbers in the order of their first publication, without duplicates."""
    return [
        int(key)
        for key in dict.fromkeys(json.loads(str(result["data"]))["key"] for result in shown)
    ]


def test_10_000_events_are_relayed_in_order_after_an_outage(
    database: Database, simulator_url: str
) -> None:
    fill(database, 10_000, 50)
    pusher = channels(simulator_url)
    add_faults(simulator_url, {"route": "pusher.batch", "status": 503})
    for _ in range(3):
        assert relay(database, pusher) == 0
        end_pause(database)
    assert (unpublished(database), published_events(simulator_url)) == (10_000, [])
    reset(simulator_url)
    queries: list[str] = []
    listening.listen(
        database.engine, "before_cursor_execute", lambda *call: queries.append(call[2])
    )
    assert relay(database, pusher) == 10_000
    assert [
        json.loads(result["data"])["key"] for result in published_events(simulator_url)
    ] == list(map(str, range(10_000)))
    assert unpublished(database) == 0
    assert len(queries) <= 51 * 14  # a few statements per batch of 200, including BEGIN


def test_intermittent_outages_lose_no_event_and_keep_the_order(
    database: Database, simulator_url: str
) -> None:
    fill(database, 300, 7)
    pusher = channels(simulator_url, seconds=2.0)
    rules = [
        {"status": 500},
        {"status": 429, "retry_after": 1},
        {"body": "cut_short"},
        {"drop": True},
        {"status": 401},
    ]
    add_faults(
        simulator_url,
        *(
            {"route": "pusher.batch", "every": 4 + number, **rule}
            for number, rule in enumerate(rules)
        ),
    )
    for _ in range(100):
        relay(database, pusher)
        end_pause(database)
        if not unpublished(database):
            break
    assert first_publications(published_events(simulator_url)) == list(range(300))


def test_concurrent_relays_keep_the_order_within_each_aggregate(
    database: Database, database_url: str, simulator_url: str
) -> None:
    fill(database, 600, 9)
    add_faults(simulator_url, {"route": "pusher.batch", "status": 503, "every": 7})
    run_in_processes(
        relay_until_all_published, *((database_url, simulator_url) for _ in range(PROCESS_COUNT))
    )
    assert unpublished(database) == 0
    by_run: dict[int, list[int]] = defaultdict(list)
    for key in first_publications(published_events(simulator_url)):
        by_run[key % 9].append(key)
    assert {run: keys == list(range(run, 600, 9)) for run, keys in by_run.items()} == dict.fromkeys(
        range(9), True
    )


def test_events_stay_queued_until_a_wrong_secret_is_corrected(
    database: Database, simulator_url: str
) -> None:
    fill(database, 30, 3)
    assert relay(database, channels(simulator_url, secret="wrong")) == 0
    with database.reading() as session:
        errors = set(session.scalars(select(OutboxRow.last_error)))
    assert len(errors) == 1
    assert "check PUSHER_KEY, PUSHER_SECRET" in str(errors)
    assert PUSHER_SECRET not in str(errors)
    end_pause(database)
    assert relay(database, channels(simulator_url)) == 30
    assert first_publications(published_events(simulator_url)) == list(range(30))
