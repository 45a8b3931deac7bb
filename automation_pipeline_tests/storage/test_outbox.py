"""The outbox: claims, order, parking and reading."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event as listening
from sqlalchemy import func, select, text, update

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.events import Event
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import (
    BEGINNING,
    Bookmark,
    ClaimedEvent,
    OutboxRow,
    claim_in_order,
    claim_waiting,
    count_attempts,
    enqueue,
    events_after,
    hand_back,
    is_waiting,
    is_withheld,
    lock_publishing,
    mark_published,
    newest_bookmark,
    park,
    put_back,
)
from automation_pipeline.storage.statements import database_now, database_time
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes
from automation_pipeline_tests.storage.processes import (
    enqueue_events,
    event,
    publish_all,
    publish_in_order,
)
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


def test_a_claimed_event_equals_the_enqueued_event(database: Database) -> None:
    fill(database, "a")
    [claimed] = claim(database)
    assert (claimed.event, claimed.attempt) == (event("a"), 1)


@pytest.mark.parametrize("year", [2020, 2100])
def test_event_availability_depends_only_on_the_database_clock(
    database: Database, year: int
) -> None:
    wrong = replace(event("a"), occurred_at=datetime(year, 1, 1, tzinfo=UTC))
    with database.transaction() as session:
        enqueue(session, [wrong])
        now = database_time(session)
    assert [claimed.event for claimed in claim(database)] == [wrong]
    assert abs((row(database).available_at - now).total_seconds()) < 60


def test_an_event_of_a_failed_transaction_is_never_claimed(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        fill_and_fail(database)
    assert claim(database) == []


def test_the_oldest_events_are_claimed_first_up_to_the_limit(database: Database) -> None:
    for key in ("c", "a", "b"):
        fill(database, key)
    assert [claimed.event.key for claimed in claim(database, limit=2)] == ["c", "a"]
    assert [claimed.event.key for claimed in claim(database, limit=2)] == ["b"]


def test_a_published_event_is_not_claimed_again(database: Database) -> None:
    fill(database, "a")
    [claimed] = claim(database, hold_seconds=0.0)
    with database.transaction() as session:
        mark_published(session, "anna", [claimed.id])
    assert claim(database) == []
    published = row(database)
    assert published.published_at is not None
    assert published.claimed_by is None


def test_an_unsettled_claim_can_be_claimed_again_after_its_hold(database: Database) -> None:
    fill(database, "a")
    started = time.monotonic()
    claim(database, "dead", hold_seconds=SHORT)
    again: list[ClaimedEvent] = []
    wait_until(lambda: bool(again.extend(claim(database, "berta")) or again))
    assert time.monotonic() - started > SHORT - 0.01  # SQLite's clock counts in milliseconds
    assert [claimed.attempt for claimed in again] == [2]


def test_a_worker_cannot_settle_a_lost_claim(database: Database) -> None:
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
    started = time.monotonic()
    with database.transaction() as session:
        put_back(session, "anna", claimed.id, error="503", delay_seconds=SHORT)
    assert row(database).last_error == "503"
    again: list[ClaimedEvent] = []
    wait_until(lambda: bool(again.extend(claim(database)) or again))
    assert time.monotonic() - started > SHORT - 0.01
    assert [claimed.attempt for claimed in again] == [2]


def test_an_event_put_back_does_not_delay_other_events(database: Database) -> None:
    fill(database, "a", "b")
    first, second = claim(database)
    with database.transaction() as session:
        put_back(session, "anna", first.id, error="503", delay_seconds=60.0)
        put_back(session, "anna", second.id, error="503", delay_seconds=0.0)
    assert [claimed.id for claimed in claim(database)] == [second.id]


def test_events_are_claimed_in_insertion_order(database: Database) -> None:
    fill(database, "z", "a", "m")
    assert [claimed.event.key for claimed in claim(database)] == ["z", "a", "m"]


def test_an_event_enqueued_by_several_processes_is_stored_once(
    database_url: str, database: Database
) -> None:
    keys = [f"event {number}" for number in range(50)]
    orders = (keys, keys[::-1], keys[25:] + keys[:25], keys)
    run_in_processes(enqueue_events, *((database_url, order) for order in orders))
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(OutboxRow)) == len(keys)
        assert set(session.scalars(select(OutboxRow.event_key))) == set(keys)


def test_concurrent_processes_claim_each_event_exactly_once(
    database_url: str, database: Database
) -> None:
    fill(database, *(f"event {number}" for number in range(200)))
    claims = run_in_processes(
        publish_all, *((database_url, f"worker {number}", 7) for number in range(PROCESS_COUNT))
    )
    counted = Counter(chain.from_iterable(claims))
    assert len(counted) == 200
    assert set(counted.values()) == {1}
    with database.reading() as session:
        left = select(func.count()).select_from(OutboxRow).where(OutboxRow.published_at.is_(None))
        assert session.scalar(left) == 0
        assert set(session.scalars(select(OutboxRow.attempts))) == {1}


def fill_order(database: Database, *keys: str) -> None:
    """The first letter is the aggregate."""
    with database.transaction() as session:
        enqueue(session, [event(key, key[0]) for key in keys])


def claim_order(
    database: Database, worker: str = "anna", limit: int = 100, hold_seconds: float = 60.0
) -> list[str]:
    with database.transaction() as session:
        claims = claim_in_order(
            session, worker, limit=limit, hold_seconds=hold_seconds, except_name="other"
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


def test_ordered_claims_are_oldest_first_and_count_no_attempt(database: Database) -> None:
    fill_order(database, "a1", "b1", "a2")
    assert claim_order(database, limit=2) == ["a1", "b1"]
    with database.reading() as session:
        assert list(session.scalars(select(OutboxRow.attempts).order_by(OutboxRow.id))) == [0, 0, 0]


def test_events_after_a_claimed_event_of_their_aggregate_wait(database: Database) -> None:
    fill_order(database, "a1", "a2", "b1", "a3")
    assert claim_order(database, "anna", limit=1) == ["a1"]
    assert claim_order(database, "berta") == ["b1"]
    publish(database, "a1")
    assert claim_order(database, "berta") == ["a2", "a3"]


def test_events_after_a_postponed_event_of_their_aggregate_wait(
    database: Database,
) -> None:
    fill_order(database, "a1", "a2", "b1")
    assert claim_order(database, limit=1) == ["a1"]
    with database.transaction() as session:
        put_back(session, "anna", ids(database, "a1")[0], error="400", delay_seconds=3600)
    assert claim_order(database) == ["b1"]
    with database.transaction() as session:
        session.execute(update(OutboxRow).values(available_at=datetime(2020, 1, 1, tzinfo=UTC)))
    assert claim_order(database) == ["a1", "a2"]


def test_a_parked_event_does_not_delay_its_aggregate(database: Database) -> None:
    fill_order(database, "a1", "a2")
    claim_order(database, limit=1)
    with database.transaction() as session:
        park(session, "anna", ids(database, "a1")[0], error="refused")
    assert claim_order(database) == ["a2"]


def test_events_with_the_excluded_name_do_not_delay_their_aggregate(database: Database) -> None:
    fill_order(database, "a1", "a2")
    with database.transaction() as session:
        first = session.scalars(select(OutboxRow).where(OutboxRow.event_key == "a1")).one()
        first.event_name, first.available_at = "other", datetime(2100, 1, 1, tzinfo=UTC)
    assert claim_order(database) == ["a2"]


def test_failed_attempts_are_counted_only_for_the_claim_holder(database: Database) -> None:
    fill_order(database, "a1", "b1")
    claim_order(database)
    with database.transaction() as session:
        count_attempts(session, "another worker", ids(database, "a1", "b1"))
        count_attempts(session, "anna", ids(database, "a1"))
    with database.reading() as session:
        assert list(session.scalars(select(OutboxRow.attempts).order_by(OutboxRow.id))) == [1, 0]


def test_events_handed_back_untried_count_no_attempt(database: Database) -> None:
    fill_order(database, "a1", "a2")
    claim_order(database)
    with database.transaction() as session:
        lock_publishing(session)
        hand_back(session, "another worker", ids(database, "a1"), error="not mine")
        hand_back(session, "anna", ids(database, "a1", "a2"), error="away")
    with database.reading() as session:
        rows = session.execute(
            select(OutboxRow.attempts, OutboxRow.last_error, OutboxRow.claimed_by)
        )
        assert set(rows.tuples()) == {(0, "away", None)}
    assert claim_order(database) == ["a1", "a2"]


def test_an_unsettled_ordered_claim_can_be_claimed_again_after_its_hold(
    database: Database,
) -> None:
    fill_order(database, "a1", "a2")
    assert claim_order(database, "dead", limit=1, hold_seconds=0.15) == ["a1"]
    again: list[str] = []
    wait_until(lambda: bool(again.extend(claim_order(database, "berta")) or again))
    assert again == ["a1", "a2"]


def test_concurrent_processes_publish_each_aggregate_in_order(
    database_url: str, database: Database
) -> None:
    keys = [f"{aggregate}{number}" for number in range(30) for aggregate in "abcdefgh"]
    fill_order(database, *keys)
    result = run_in_processes(
        publish_in_order,
        *((database_url, f"worker {number}", 5) for number in range(PROCESS_COUNT)),
    )
    assert sorted(chain.from_iterable((key for _, key in by) for by in result)) == sorted(keys)
    assert in_order(sorted(chain.from_iterable(result)))


def in_order(result: Sequence[tuple[float, str]]) -> bool:
    """`result` is sorted by publication time."""
    by_aggregate = groupby(
        sorted((key for _, key in result), key=lambda key: key[0]), key=lambda key: key[0]
    )
    return all(
        numbers == sorted(numbers)
        for numbers in ([int(key[1:]) for key in keys] for _, keys in by_aggregate)
    )


def test_a_claim_takes_a_constant_number_of_queries(database: Database) -> None:
    fill_order(database, *(f"a{number}" for number in range(500)))
    seen: list[str] = []
    listening.listen(database.engine, "before_cursor_execute", lambda *call: seen.append(call[2]))
    assert len(claim_order(database, limit=200)) == 200
    assert len(seen) <= 3


def fill_parking(database: Database, *keys: str) -> None:
    with database.transaction() as session:
        enqueue(session, [event(key) for key in keys])


def claim_parking(database: Database, **names: str) -> list[int]:
    with database.transaction() as session:
        return [
            row.id for row in claim_waiting(session, "anna", limit=10, hold_seconds=60.0, **names)
        ]


def test_claims_can_be_limited_to_an_event_name(database: Database) -> None:
    fill_parking(database, "a", "b")
    assert claim_parking(database, only="other") == []
    assert len(claim_parking(database, only="run.completed")) == 2


def test_is_waiting_is_true_until_the_event_is_claimed(database: Database) -> None:
    seen = []
    for step in (
        lambda: None,
        lambda: fill_parking(database, "a"),
        lambda: claim_parking(database),
    ):
        step()
        with database.reading() as session:
            seen.append(is_waiting(session))
    assert seen == [False, True, False]


def test_a_parked_event_is_never_claimed(database: Database) -> None:
    fill_parking(database, "a")
    [claimed] = claim_parking(database)
    with database.transaction() as session:
        park(session, "anna", claimed, error="broken")
    assert claim_parking(database) == []
    with database.reading() as session:
        row = session.scalars(select(OutboxRow)).one()
    assert (row.last_error, row.published_at, row.claimed_by) == ("broken", None, None)


def fill_reading(database: Database, *events: Event) -> None:
    with database.transaction() as session:
        enqueue(session, events)


def read(
    database: Database, after: Bookmark, limit: int = 100, **followed: str
) -> tuple[list[str], Bookmark]:
    """By default of the aggregate `run`."""
    with database.reading() as session:
        found = events_after(session, after, **(followed or {"correlation_id": "run"}), limit=limit)
    return [result.key for _, result in found], found[-1][0] if found else after


def read_all(database: Database, after: Bookmark = BEGINNING, limit: int = 100) -> list[str]:
    """Reads like a browser that reconnects after every page."""
    keys: list[str] = []
    while True:
        page, after = read(database, Bookmark.read(str(after)), limit)
        if not page:
            return keys
        keys += page


def settled(database: Database, *, keys: list[str]) -> None:
    """Other transactions, such as those of the server, can delay the newest events."""
    wait_until(lambda: read_all(database) == keys)


def test_a_subscriber_sees_the_events_of_its_subject_in_order(database: Database) -> None:
    fill_reading(
        database,
        event("1", "run", fiche_id="f"),
        event("2", "another", fiche_id="f"),
        event("3", "run"),
    )
    settled(database, keys=["1", "3"])
    assert read(database, BEGINNING, correlation_id="another")[0] == ["2"]
    assert read(database, BEGINNING, fiche_id="f")[0] == ["1", "2"]
    assert read(database, BEGINNING, correlation_id="nothing")[0] == []


@every_case("limit", [1, 3, 7, 100])
def test_paging_and_resuming_skip_and_repeat_no_event(database: Database, limit: int) -> None:
    keys = [str(number) for number in range(20)]
    for key in keys:
        fill_reading(database, event(key, "run"))
    settled(database, keys=keys)
    assert read_all(database, limit=limit) == keys
    for place in range(0, 20, 6):
        _, bookmark = read(database, BEGINNING, place + 1)
        fill_reading(database, event(f"later {place}", "elsewhere"))
        assert read_all(database, bookmark, limit) == keys[place + 1 :]


def test_internal_events_are_not_shown_to_subscribers(database: Database) -> None:
    events = event("a", "run")
    internal = Event(
        "tenant", "b", "automation/notification", "test", "run", events.occurred_at, {}
    )
    fill_reading(database, events, internal, event("c", "run"))
    settled(database, keys=["a", "c"])


def test_reading_from_the_newest_bookmark_returns_only_later_events(database: Database) -> None:
    fill_reading(database, event("old", "run"))
    settled(database, keys=["old"])
    with database.reading() as session:
        newest = newest_bookmark(session)
    assert read_all(database, newest) == []
    fill_reading(database, event("new", "run"))
    wait_until(lambda: read_all(database, newest) == ["new"])


def test_events_after_needs_exactly_one_filter(database: Database) -> None:
    for followed in ({}, {"correlation_id": "a", "fiche_id": "b"}):
        with database.reading() as session, pytest.raises(ValueError, match="followed"):
            events_after(session, BEGINNING, **followed, limit=1)


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("first_to_begin", ["early", "late"])
def test_an_event_committed_late_is_never_skipped(database: Database, first_to_begin: str) -> None:
    """`early` draws the lower id and commits last, whichever transaction began first."""
    with Session(database.engine) as early, Session(database.engine) as late:
        for session in (early, late) if first_to_begin == "early" else (late, early):
            session.execute(text("SELECT pg_current_xact_id()"))
        enqueue(early, [event("early", "run")])
        enqueue(late, [event("late", "run")])
        late.commit()
        seen = [] if first_to_begin == "early" else ["late"]
        wait_until(lambda: read(database, BEGINNING)[0] == seen)
        _, bookmark = read(database, BEGINNING)
        fill_reading(database, event("afterwards", "run"))
        page, bookmark = read(database, bookmark)
        assert page == []
        early.commit()
    rest = ["early", "late", "afterwards"] if first_to_begin == "early" else ["early", "afterwards"]
    wait_until(lambda: read_all(database, bookmark) == rest)
    assert read_all(database, Bookmark.read(str(bookmark)), limit=1) == rest
    assert read_all(database) == ["early", "late", "afterwards"]


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_a_rolled_back_transaction_does_not_block_later_events(database: Database) -> None:
    with Session(database.engine) as broken:
        enqueue(broken, [event("broken", "run")])
        fill_reading(database, event("whole", "run"))
        assert read_all(database) == []
        broken.rollback()
    wait_until(lambda: read_all(database) == ["whole"])


def as_of_another_cluster(database: Database, *keys: str) -> None:
    """Gives the events transaction ids of a cluster that is further ahead."""
    raised = {"transaction_id": OutboxRow.transaction_id + 1_000_000}
    with database.transaction() as session:
        session.execute(update(OutboxRow).where(OutboxRow.event_key.in_(keys)).values(raised))


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_events_restored_from_another_cluster_are_read_once_in_order(
    database: Database, limit: int
) -> None:
    fill_reading(database, event("1", "run"), event("2", "run"), event("3", "run"))
    as_of_another_cluster(database, "2", "3")
    wait_until(lambda: read_all(database, limit=limit) == ["1", "2", "3"])
    with database.reading() as session:
        newest = newest_bookmark(session)
        assert not is_withheld(session, "run")
    _, bookmark = read(database, BEGINNING)
    fill_reading(database, event("4", "run"))
    wait_until(lambda: read_all(database, newest, limit) == ["4"])
    wait_until(lambda: read_all(database, bookmark, limit) == ["4"])
    wait_until(lambda: read_all(database, limit=limit) == ["1", "2", "3", "4"])


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_a_bookmark_from_another_cluster_remains_valid(database: Database) -> None:
    fill_reading(database, event("1", "run"), event("2", "run"))
    settled(database, keys=["1", "2"])
    _, seen = read(database, BEGINNING, 1)
    raised = Bookmark(seen.since + 1_000_000, seen.until + 1_000_000, seen.id)
    as_of_another_cluster(database, "1", "2")
    fill_reading(database, event("3", "run"))
    wait_until(lambda: read_all(database, raised) == ["2", "3"])


@given(st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1))
def test_a_bookmark_survives_a_round_trip(since: int, until: int, id_: int) -> None:
    assert Bookmark.read(str(Bookmark(since, until, id_))) == Bookmark(since, until, id_)


@every_case(
    "written", ["", "5", "1-2", "1-2-x", "1-2--3", "1-2-3-4", "1-2-3\n", "١-٢-٣", "1-2-" + "9" * 19]
)
def test_an_invalid_bookmark_is_refused(written: str) -> None:
    with pytest.raises(InvalidInputError):
        Bookmark.read(written)


def test_only_aggregates_with_an_event_since_an_instant_are_claimed(database: Database) -> None:
    with database.transaction() as session:
        enqueue(session, [event("old of a", "a"), event("old of b", "b")])
    with database.transaction() as session:
        session.execute(update(OutboxRow).values(available_at=database_now(-60)))
    with database.reading() as session:
        since = database_time(session) - timedelta(seconds=5)
        assert not is_waiting(session, since)
    with database.transaction() as session:
        enqueue(session, [event("new of a", "a")])
    with database.transaction() as session:
        assert is_waiting(session, since)
        claimed = claim_waiting(session, "worker", limit=9, hold_seconds=60, caused_since=since)
        assert [one.event.key for one in claimed] == ["old of a", "new of a"]
