"""Events are stored once and relayed at least once: each claimed by one worker, none forgotten."""

import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

import pytest
from sqlalchemy import func, select

from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import (
    ClaimedEvent,
    OutboxRow,
    claim_waiting,
    enqueue,
    mark_published,
    put_back,
)
from automation_pipeline_tests.processes import CREW, at_once
from automation_pipeline_tests.storage.processes import enqueue_events, event, publish_all
from automation_pipeline_tests.waiting import wait_until

SHORT = 0.15


def fill(database: Database, *keys: str) -> None:
    with database.transaction() as session:
        enqueue(session, [event(key) for key in keys])


def fill_and_fail(database: Database) -> None:
    with database.transaction() as session:
        enqueue(session, [event("a")])
        raise ZeroDivisionError


def claim(
    database: Database, worker: str = "anna", limit: int = 100, hold_seconds: float = 60.0
) -> list[ClaimedEvent]:
    with database.transaction() as session:
        return claim_waiting(session, worker, limit=limit, hold_seconds=hold_seconds)


def row(database: Database) -> OutboxRow:
    with database.reading() as session:
        return session.scalars(select(OutboxRow)).one()


def test_a_claimed_event_is_the_event_that_was_written(database: Database) -> None:
    fill(database, "a")
    [claimed] = claim(database)
    assert (claimed.event, claimed.attempt) == (event("a"), 1)


@pytest.mark.parametrize("year", [2020, 2100])
def test_no_clock_but_the_databases_says_when_an_event_may_leave(
    database: Database, year: int
) -> None:
    wrong = replace(event("a"), occurred_at=datetime(year, 1, 1, tzinfo=UTC))
    with database.transaction() as session:
        enqueue(session, [wrong])
        now = database_time(session)
    assert [claimed.event for claimed in claim(database)] == [wrong]
    assert abs((row(database).available_at - now).total_seconds()) < 60


def test_an_event_of_a_transaction_that_failed_is_never_seen(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        fill_and_fail(database)
    assert claim(database) == []


def test_the_oldest_are_claimed_first_and_no_more_than_asked_for(database: Database) -> None:
    for key in ("c", "a", "b"):
        fill(database, key)
    assert [claimed.event.key for claimed in claim(database, limit=2)] == ["c", "a"]
    assert [claimed.event.key for claimed in claim(database, limit=2)] == ["b"]


def test_a_published_event_is_published_once(database: Database) -> None:
    fill(database, "a")
    [claimed] = claim(database, hold_seconds=0.0)
    with database.transaction() as session:
        mark_published(session, "anna", [claimed.id])
    assert claim(database) == []
    published = row(database)
    assert published.published_at is not None
    assert published.claimed_by is None


def test_a_claim_that_was_never_settled_can_be_claimed_after_its_hold(database: Database) -> None:
    fill(database, "a")
    begun = time.monotonic()
    claim(database, "dead", hold_seconds=SHORT)
    again: list[ClaimedEvent] = []
    wait_until(lambda: bool(again.extend(claim(database, "berta")) or again))
    assert time.monotonic() - begun > SHORT - 0.01  # SQLite's clock counts in milliseconds
    assert [claimed.attempt for claimed in again] == [2]


def test_a_worker_that_lost_its_claim_can_no_longer_settle_it(database: Database) -> None:
    fill(database, "a")
    [late] = claim(database, "late", hold_seconds=0.0)
    claim(database, "berta")
    with database.transaction() as session:
        mark_published(session, "late", [late.id])
        put_back(session, "late", late.id, error="timed out", delay_seconds=0.0)
    kept = row(database)
    assert (kept.published_at, kept.claimed_by, kept.last_error) == (None, "berta", None)


def test_an_event_put_back_waits_for_its_delay(database: Database) -> None:
    fill(database, "a")
    [claimed] = claim(database)
    begun = time.monotonic()
    with database.transaction() as session:
        put_back(session, "anna", claimed.id, error="503", delay_seconds=SHORT)
    assert row(database).last_error == "503"
    again: list[ClaimedEvent] = []
    wait_until(lambda: bool(again.extend(claim(database)) or again))
    assert time.monotonic() - begun > SHORT - 0.01
    assert [claimed.attempt for claimed in again] == [2]


def test_an_event_put_back_does_not_hold_up_the_others(database: Database) -> None:
    fill(database, "a", "b")
    first, second = claim(database)
    with database.transaction() as session:
        put_back(session, "anna", first.id, error="503", delay_seconds=60.0)
        put_back(session, "anna", second.id, error="503", delay_seconds=0.0)
    assert [claimed.id for claimed in claim(database)] == [second.id]


def test_events_are_relayed_in_the_order_in_which_they_were_told(database: Database) -> None:
    fill(database, "z", "a", "m")
    assert [claimed.event.key for claimed in claim(database)] == ["z", "a", "m"]


def test_an_event_enqueued_by_several_processes_is_stored_once(
    database_url: str, database: Database
) -> None:
    keys = [f"event {number}" for number in range(50)]
    orders = (keys, keys[::-1], keys[25:] + keys[:25], keys)
    at_once(enqueue_events, *((database_url, order) for order in orders))
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(OutboxRow)) == len(keys)
        assert set(session.scalars(select(OutboxRow.event_key))) == set(keys)


def test_processes_claiming_at_once_get_each_event_exactly_once(
    database_url: str, database: Database
) -> None:
    fill(database, *(f"event {number}" for number in range(200)))
    claims = at_once(
        publish_all, *((database_url, f"worker {number}", 7) for number in range(CREW))
    )
    counted = Counter(chain.from_iterable(claims))
    assert len(counted) == 200
    assert set(counted.values()) == {1}
    with database.reading() as session:
        left = select(func.count()).select_from(OutboxRow).where(OutboxRow.published_at.is_(None))
        assert session.scalar(left) == 0
        assert set(session.scalars(select(OutboxRow.attempts))) == {1}
