"""Who follows a run or a fiche sees each event once, in order, and never misses one that was
committed late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text, update

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.events import Event
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import (
    BEGINNING,
    Bookmark,
    OutboxRow,
    enqueue,
    events_after,
    is_withheld,
    newest_bookmark,
)
from automation_pipeline_tests.storage.processes import event
from automation_pipeline_tests.tables import every_case
from automation_pipeline_tests.waiting import wait_until


def fill(database: Database, *events: Event) -> None:
    with database.transaction() as session:
        enqueue(session, events)


def read(
    database: Database, after: Bookmark, limit: int = 100, **followed: str
) -> tuple[list[str], Bookmark]:
    """By default, of the aggregate `run`."""
    with database.reading() as session:
        found = events_after(session, after, **(followed or {"correlation_id": "run"}), limit=limit)
    return [told.key for _, told in found], found[-1][0] if found else after


def read_all(database: Database, after: Bookmark = BEGINNING, limit: int = 100) -> list[str]:
    """As a browser that loses its connection after every page."""
    keys: list[str] = []
    while True:
        page, after = read(database, Bookmark.read(str(after)), limit)
        if not page:
            return keys
        keys += page


def settled(database: Database, *, keys: list[str]) -> None:
    """Transactions of others, such as the server's own, may hold the newest events back for a
    moment."""
    wait_until(lambda: read_all(database) == keys)


def test_each_sees_the_events_of_what_it_follows_in_order(database: Database) -> None:
    fill(
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
def test_pages_and_resumptions_lose_and_repeat_nothing(database: Database, limit: int) -> None:
    keys = [str(number) for number in range(20)]
    for key in keys:
        fill(database, event(key, "run"))
    settled(database, keys=keys)
    assert read_all(database, limit=limit) == keys
    for place in range(0, 20, 6):
        _, bookmark = read(database, BEGINNING, place + 1)
        fill(database, event(f"later {place}", "elsewhere"))
        assert read_all(database, bookmark, limit) == keys[place + 1 :]


def test_internal_events_are_for_nobody(database: Database) -> None:
    told = event("a", "run")
    internal = Event("tenant", "b", "automation/notification", "test", "run", told.occurred_at, {})
    fill(database, told, internal, event("c", "run"))
    settled(database, keys=["a", "c"])


def test_from_the_newest_on_only_what_comes_is_seen(database: Database) -> None:
    fill(database, event("old", "run"))
    settled(database, keys=["old"])
    with database.reading() as session:
        newest = newest_bookmark(session)
    assert read_all(database, newest) == []
    fill(database, event("new", "run"))
    wait_until(lambda: read_all(database, newest) == ["new"])


def test_one_thing_is_followed(database: Database) -> None:
    for followed in ({}, {"correlation_id": "a", "fiche_id": "b"}):
        with database.reading() as session, pytest.raises(ValueError, match="followed"):
            events_after(session, BEGINNING, **followed, limit=1)


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("first_to_begin", ["early", "late"])
def test_an_event_that_is_committed_late_is_never_missed(
    database: Database, first_to_begin: str
) -> None:
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
        fill(database, event("afterwards", "run"))
        page, bookmark = read(database, bookmark)
        assert page == []
        early.commit()
    rest = ["early", "late", "afterwards"] if first_to_begin == "early" else ["early", "afterwards"]
    wait_until(lambda: read_all(database, bookmark) == rest)
    assert read_all(database, Bookmark.read(str(bookmark)), limit=1) == rest
    assert read_all(database) == ["early", "late", "afterwards"]


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_a_transaction_that_is_rolled_back_holds_up_nobody_afterwards(database: Database) -> None:
    with Session(database.engine) as broken:
        enqueue(broken, [event("broken", "run")])
        fill(database, event("whole", "run"))
        assert read_all(database) == []
        broken.rollback()
    wait_until(lambda: read_all(database) == ["whole"])


def as_of_another_cluster(database: Database, *keys: str) -> None:
    """As if they had come with a dump of one that had counted further."""
    raised = {"transaction_id": OutboxRow.transaction_id + 1_000_000}
    with database.transaction() as session:
        session.execute(update(OutboxRow).where(OutboxRow.event_key.in_(keys)).values(raised))


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_events_of_a_dump_of_another_cluster_are_shown_once_and_in_order(
    database: Database, limit: int
) -> None:
    fill(database, event("1", "run"), event("2", "run"), event("3", "run"))
    as_of_another_cluster(database, "2", "3")
    wait_until(lambda: read_all(database, limit=limit) == ["1", "2", "3"])
    with database.reading() as session:
        newest = newest_bookmark(session)
        assert not is_withheld(session, "run")
    _, bookmark = read(database, BEGINNING)
    fill(database, event("4", "run"))
    wait_until(lambda: read_all(database, newest, limit) == ["4"])
    wait_until(lambda: read_all(database, bookmark, limit) == ["4"])
    wait_until(lambda: read_all(database, limit=limit) == ["1", "2", "3", "4"])


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_who_followed_on_the_other_cluster_goes_on_here(database: Database) -> None:
    fill(database, event("1", "run"), event("2", "run"))
    settled(database, keys=["1", "2"])
    _, seen = read(database, BEGINNING, 1)
    raised = Bookmark(seen.since + 1_000_000, seen.until + 1_000_000, seen.id)
    as_of_another_cluster(database, "1", "2")
    fill(database, event("3", "run"))
    wait_until(lambda: read_all(database, raised) == ["2", "3"])


@given(st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1))
def test_a_bookmark_is_read_as_it_was_written(since: int, until: int, id_: int) -> None:
    assert Bookmark.read(str(Bookmark(since, until, id_))) == Bookmark(since, until, id_)


@every_case(
    "written", ["", "5", "1-2", "1-2-x", "1-2--3", "1-2-3-4", "1-2-3\n", "١-٢-٣", "1-2-" + "9" * 19]
)
def test_what_is_no_bookmark_is_refused(written: str) -> None:
    with pytest.raises(InvalidInputError):
        Bookmark.read(written)
