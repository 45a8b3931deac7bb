"""An aggregate's events leave in their order, whoever else is at work; other aggregates do not wait
for it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain, groupby

from sqlalchemy import event as listening
from sqlalchemy import select, update

from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import (
    OutboxRow,
    claim_in_order,
    count_attempts,
    enqueue,
    hand_back,
    lock_publishing,
    mark_published,
    park,
    put_back,
)
from automation_pipeline_tests.processes import CREW, at_once
from automation_pipeline_tests.storage.processes import event, publish_in_order
from automation_pipeline_tests.waiting import wait_until


def fill(database: Database, *keys: str) -> None:
    """The first letter is the aggregate."""
    with database.transaction() as session:
        enqueue(session, [event(key, key[0]) for key in keys])


def claim(
    database: Database, worker: str = "anna", limit: int = 100, hold_seconds: float = 60.0
) -> list[str]:
    with database.transaction() as session:
        claims = claim_in_order(
            session, worker, limit=limit, hold_seconds=hold_seconds, but="other"
        )
        return [claimed.event.key for claimed in claims]


def ids(database: Database, *keys: str) -> list[int]:
    with database.reading() as session:
        return list(
            session.scalars(
                select(OutboxRow.id).where(OutboxRow.event_key.in_(keys)).order_by(OutboxRow.id)
            )
        )


def publish(database: Database, *keys: str, worker: str = "anna") -> None:
    with database.transaction() as session:
        mark_published(session, worker, ids(database, *keys))


def test_the_oldest_come_first_and_no_claim_is_an_attempt(database: Database) -> None:
    fill(database, "a1", "b1", "a2")
    assert claim(database, limit=2) == ["a1", "b1"]
    with database.reading() as session:
        assert list(session.scalars(select(OutboxRow.attempts).order_by(OutboxRow.id))) == [0, 0, 0]


def test_nobody_gets_what_comes_after_an_event_that_somebody_holds(database: Database) -> None:
    fill(database, "a1", "a2", "b1", "a3")
    assert claim(database, "anna", limit=1) == ["a1"]
    assert claim(database, "berta") == ["b1"]
    publish(database, "a1")
    assert claim(database, "berta") == ["a2", "a3"]


def test_nobody_gets_what_comes_after_an_event_that_waits_for_its_next_attempt(
    database: Database,
) -> None:
    fill(database, "a1", "a2", "b1")
    assert claim(database, limit=1) == ["a1"]
    with database.transaction() as session:
        put_back(session, "anna", ids(database, "a1")[0], error="400", delay_seconds=3600)
    assert claim(database) == ["b1"]
    with database.transaction() as session:
        session.execute(update(OutboxRow).values(available_at=datetime(2020, 1, 1, tzinfo=UTC)))
    assert claim(database) == ["a1", "a2"]


def test_a_parked_event_holds_up_nobody(database: Database) -> None:
    fill(database, "a1", "a2")
    claim(database, limit=1)
    with database.transaction() as session:
        park(session, "anna", ids(database, "a1")[0], error="refused")
    assert claim(database) == ["a2"]


def test_events_of_the_name_that_is_left_out_hold_up_nobody(database: Database) -> None:
    fill(database, "a1", "a2")
    with database.transaction() as session:
        first = session.scalars(select(OutboxRow).where(OutboxRow.event_key == "a1")).one()
        first.event_name, first.available_at = "other", datetime(2100, 1, 1, tzinfo=UTC)
    assert claim(database) == ["a2"]


def test_what_was_tried_in_vain_counts_an_attempt_of_who_holds_it(database: Database) -> None:
    fill(database, "a1", "b1")
    claim(database)
    with database.transaction() as session:
        count_attempts(session, "somebody else", ids(database, "a1", "b1"))
        count_attempts(session, "anna", ids(database, "a1"))
    with database.reading() as session:
        assert list(session.scalars(select(OutboxRow.attempts).order_by(OutboxRow.id))) == [1, 0]


def test_what_is_handed_back_untried_counts_no_attempt(database: Database) -> None:
    fill(database, "a1", "a2")
    claim(database)
    with database.transaction() as session:
        lock_publishing(session)
        hand_back(session, "somebody else", ids(database, "a1"), error="not mine")
        hand_back(session, "anna", ids(database, "a1", "a2"), error="away")
    with database.reading() as session:
        rows = session.execute(
            select(OutboxRow.attempts, OutboxRow.last_error, OutboxRow.claimed_by)
        )
        assert set(rows.tuples()) == {(0, "away", None)}
    assert claim(database) == ["a1", "a2"]


def test_a_claim_that_was_never_settled_can_be_claimed_after_its_hold(database: Database) -> None:
    fill(database, "a1", "a2")
    assert claim(database, "dead", limit=1, hold_seconds=0.15) == ["a1"]
    again: list[str] = []
    wait_until(lambda: bool(again.extend(claim(database, "berta")) or again))
    assert again == ["a1", "a2"]


def test_processes_at_once_publish_each_aggregate_in_its_order(
    database_url: str, database: Database
) -> None:
    keys = [f"{aggregate}{number}" for number in range(30) for aggregate in "abcdefgh"]
    fill(database, *keys)
    told = at_once(
        publish_in_order, *((database_url, f"worker {number}", 5) for number in range(CREW))
    )
    assert sorted(chain.from_iterable((key for _, key in by) for by in told)) == sorted(keys)
    assert in_order(sorted(chain.from_iterable(told)))


def in_order(told: Sequence[tuple[float, str]]) -> bool:
    """`told` is by the time at which each was published."""
    by_aggregate = groupby(
        sorted((key for _, key in told), key=lambda key: key[0]), key=lambda key: key[0]
    )
    return all(
        numbers == sorted(numbers)
        for numbers in ([int(key[1:]) for key in keys] for _, keys in by_aggregate)
    )


def test_a_claim_is_a_constant_number_of_queries(database: Database) -> None:
    fill(database, *(f"a{number}" for number in range(500)))
    seen: list[str] = []
    listening.listen(database.engine, "before_cursor_execute", lambda *call: seen.append(call[2]))
    assert len(claim(database, limit=200)) == 200
    assert len(seen) <= 3
