"""Writes of concurrent tasks share a commit but remain isolated from each other."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from threading import Event as Signal
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import event, select

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.events import Event, WorkflowLogEntry
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.group_commit import run_each
from automation_pipeline.storage.history import WorkflowLogRow, write_notes
from automation_pipeline.storage.monitoring import ProcessHeartbeatRow, record_heartbeat
from automation_pipeline.storage.outbox import OutboxRow, enqueue
from automation_pipeline.storage.statements import database_time


class OnPurposeError(Exception):
    pass


class BlockingWrite:
    """Blocks the first write, so that later writes form one group."""

    def __init__(self) -> None:
        self._open = Signal()

    def write(self, _session: Session) -> None:
        self._open.wait(30)

    def open(self) -> None:
        self._open.set()


def written_together(
    database: Database, writes: Sequence[Callable[[Session], object]]
) -> list[object]:
    """Results or errors of the writes."""

    async def all_at_once() -> list[object]:
        blocker = BlockingWrite()
        first = asyncio.create_task(database.write(blocker.write))
        await asyncio.sleep(0)
        others = [asyncio.create_task(database.write(write)) for write in writes]
        await asyncio.sleep(0)
        blocker.open()
        await first
        return await asyncio.gather(*others, return_exceptions=True)

    return asyncio.run(all_at_once())


def commits_of(database: Database) -> list[object]:
    seen: list[object] = []
    event.listen(database.engine, "commit", seen.append)
    return seen


def beat(name: str, session: Session) -> str:
    record_heartbeat(session, name)
    return name


def fail(session: Session) -> None:
    record_heartbeat(session, "in vain")
    raise OnPurposeError


def names(database: Database) -> set[str]:
    with database.reading() as session:
        return set(session.scalars(select(ProcessHeartbeatRow.name)))


def test_grouped_writes_have_their_own_results_and_share_a_commit(database: Database) -> None:
    commits = commits_of(database)
    assert written_together(database, [partial(beat, str(n)) for n in range(40)]) == [
        str(n) for n in range(40)
    ]
    assert names(database) == {str(n) for n in range(40)}
    assert len(commits) == 2  # one for the blocking write and one for the group


def test_a_failed_write_does_not_roll_back_the_others_in_its_group(database: Database) -> None:
    found = written_together(database, [partial(beat, "one"), fail, partial(beat, "two")])
    assert found[0] == "one"
    assert isinstance(found[1], OnPurposeError)
    assert found[2] == "two"
    assert names(database) == {"one", "two"}


def test_grouped_writes_do_not_share_loaded_objects(database: Database) -> None:
    written_together(database, [partial(beat, "one")])
    with database.reading() as session:
        before = session.get_one(ProcessHeartbeatRow, "one").beat_at

    def load(session: Session) -> ProcessHeartbeatRow:
        return session.get_one(ProcessHeartbeatRow, "one")

    mine, _, after = written_together(database, [load, partial(beat, "one"), load])
    assert mine.beat_at == before  # pyright: ignore[reportAttributeAccessIssue]  the result of `load`
    assert after.beat_at > before  # pyright: ignore[reportAttributeAccessIssue]  the same


def test_grouped_writes_share_one_timestamp_and_keep_event_and_log_order(
    database: Database,
) -> None:
    def enqueue_and_log(number: int, session: Session) -> object:
        enqueue(session, [make_event(key=f"{number}.{n}") for n in range(2)])
        write_notes(session, make_note(f"{number}"))
        return database_time(session)

    instants = written_together(database, [partial(enqueue_and_log, number) for number in range(5)])
    assert len(set(instants)) == 1
    with database.reading() as session:
        keys = session.scalars(select(OutboxRow.event_key).order_by(OutboxRow.id)).all()
        notes = session.scalars(select(WorkflowLogRow.message).order_by(WorkflowLogRow.id)).all()
    assert keys == [f"{number}.{n}" for number in range(5) for n in range(2)]
    assert notes == [f"{number}" for number in range(5)]


def test_events_of_a_failed_write_are_discarded(database: Database) -> None:
    def enqueue_and_fail(session: Session) -> None:
        enqueue(session, [make_event(key="in vain")])
        raise OnPurposeError

    written_together(database, [enqueue_and_fail, partial(beat, "one")])
    with database.reading() as session:
        assert session.scalars(select(OutboxRow)).all() == []


def test_items_of_one_operation_are_written_together_and_fail_individually(
    database: Database,
) -> None:
    calls: list[Sequence[str]] = []

    def beat_all(session: Session, beats: Sequence[str]) -> list[str | InvalidInputError]:
        calls.append(beats)
        for each in beats:
            record_heartbeat(session, each)
        return [InvalidInputError("odd") if each == "odd" else each.upper() for each in beats]

    assert in_bulk(database, beat_all, ["a", "odd", "b"]) == ["A", "InvalidInputError", "B"]
    assert calls == [["a", "odd", "b"]]
    assert database.write_in_bulk_soon(beat_all, "c") == "C"
    assert names(database) == {"a", "b", "c", "odd"}


def test_a_bulk_operation_that_raises_is_retried_per_item(database: Database) -> None:
    def refuse_odd(session: Session, beats: Sequence[str]) -> list[str]:
        for each in beats:
            record_heartbeat(session, each)
            if each == "odd":
                raise OnPurposeError
        return list(beats)

    assert in_bulk(database, refuse_odd, ["a", "odd", "b"]) == ["a", "OnPurposeError", "b"]
    assert names(database) == {"a", "b"}


def test_a_bulk_error_is_raised_in_a_single_transaction(database: Database) -> None:
    def refuse(_session: Session, beats: Sequence[str]) -> list[InvalidInputError]:
        return [InvalidInputError(each) for each in beats]

    with database.single_transaction(), pytest.raises(InvalidInputError, match="alone"):
        database.write_in_bulk_soon(refuse, "alone")


def in_bulk(
    database: Database, operation: Callable[[Session, Sequence[str]], Any], items: Sequence[str]
) -> list[str]:
    """Results, or the names of the errors, of items written in one group."""

    async def all_at_once() -> list[str]:
        blocker = BlockingWrite()
        first = asyncio.create_task(database.write(blocker.write))
        await asyncio.sleep(0)
        others = [asyncio.create_task(database.write_in_bulk(operation, each)) for each in items]
        await asyncio.sleep(0)
        blocker.open()
        await first
        ended = await asyncio.gather(*others, return_exceptions=True)
        return [type(each).__name__ if isinstance(each, Exception) else each for each in ended]

    return asyncio.run(all_at_once())


def test_a_write_cancelled_while_queued_writes_nothing(database: Database) -> None:
    async def cancelled() -> None:
        blocker = BlockingWrite()
        first = asyncio.create_task(database.write(blocker.write))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(database.write(partial(beat, "in vain")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        blocker.open()
        await first

    asyncio.run(cancelled())
    assert names(database) == set()


def test_a_write_even_if_cancelled_survives_the_cancellation_of_its_task(
    database: Database,
) -> None:
    async def cancelled() -> None:
        blocker = BlockingWrite()
        first = asyncio.create_task(database.write(blocker.write))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(
            database.write(partial(beat, "anyway"), even_if_cancelled=True)
        )
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        blocker.open()
        await first

    asyncio.run(cancelled())
    database.dispose()  # flushes queued writes
    assert names(database) == {"anyway"}


def test_a_group_notifies_its_event_loop_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    really = asyncio.SelectorEventLoop.call_soon_threadsafe

    def counted(loop: asyncio.SelectorEventLoop, *given: Any, **named: Any) -> asyncio.Handle:
        calls.append(given)
        return really(loop, *given, **named)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "call_soon_threadsafe", counted)
    # Methods of uvloop's loop cannot be replaced.
    monkeypatch.setattr(asyncio.events, "new_event_loop", asyncio.SelectorEventLoop)
    written_together(database, [partial(beat, str(n)) for n in range(40)])
    assert len(calls) == 2  # one for the blocking write and one for the group


def test_a_closed_event_loop_does_not_affect_other_writes(
    database: Database,
) -> None:
    blocker = BlockingWrite()

    async def leave_behind() -> None:
        asyncio.create_task(database.write(blocker.write))  # noqa: RUF006  left behind on purpose
        asyncio.create_task(database.write(partial(beat, "left behind"), even_if_cancelled=True))  # noqa: RUF006  left behind on purpose
        await asyncio.sleep(0)

    asyncio.run(leave_behind())
    blocker.open()
    database.write_in_bulk_soon(run_each, partial(beat, "later"))
    assert names(database) == {"left behind", "later"}


def test_a_bulk_write_joins_a_single_transaction(database: Database) -> None:
    def write() -> None:
        with database.single_transaction():
            database.write_in_bulk_soon(run_each, partial(beat, "in vain"))
            raise OnPurposeError

    with pytest.raises(OnPurposeError):
        write()
    assert names(database) == set()


def test_bulk_writes_and_direct_transactions_from_threads_all_succeed(database: Database) -> None:
    def many(name: str) -> None:
        for n in range(20):
            database.write_in_bulk_soon(run_each, partial(beat, f"{name}{n}"))
            with database.transaction() as session:
                record_heartbeat(session, f"{name}{n} alone")

    threads = [Thread(target=many, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names(database)) == 160


def test_a_disposed_database_can_be_used_again(database: Database) -> None:
    database.write_in_bulk_soon(run_each, partial(beat, "one"))
    database.dispose()
    database.write_in_bulk_soon(run_each, partial(beat, "two"))
    assert names(database) == {"one", "two"}


def make_note(message: str) -> WorkflowLogEntry:
    return WorkflowLogEntry(
        workflow="test", entity_type="fiche", entity_id="1", trace_id="1", message=message
    )


def make_event(*, key: str) -> Event:
    at = datetime(2026, 5, 4, tzinfo=UTC)
    return Event(
        tenant_id="main",
        key=key,
        name="test.event",
        producer="test",
        correlation_id="1",
        occurred_at=at,
        payload={},
    )
