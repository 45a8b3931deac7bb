"""Transactions begun inside `as_one` are one: all is kept or nothing, and each sees what the others
wrote."""

from threading import Thread

import pytest
from sqlalchemy import func, select

from automation_pipeline.storage.database import Database
from automation_pipeline.storage.heartbeats import ProcessHeartbeatRow, record_heartbeat


def beats(database: Database) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(ProcessHeartbeatRow)) or 0


def beat(database: Database, name: str) -> None:
    with database.transaction() as session:
        record_heartbeat(session, name)


def beat_in_vain(database: Database) -> None:
    with database.transaction() as session:
        record_heartbeat(session, "in vain")
        raise OnPurposeError


class OnPurposeError(Exception):
    pass


def test_all_is_kept_together(database: Database) -> None:
    with database.as_one():
        beat(database, "one")
        assert beats(database) == 1
        beat(database, "two")
        assert beats(database) == 2
    assert beats(database) == 2


def test_when_the_whole_fails_nothing_is_kept(database: Database) -> None:
    def broken() -> None:
        with database.as_one():
            beat(database, "one")
            raise OnPurposeError

    with pytest.raises(OnPurposeError):
        broken()
    assert beats(database) == 0


def test_a_part_that_fails_and_is_understood_takes_only_itself_back(database: Database) -> None:
    with database.as_one():
        beat(database, "one")
        with pytest.raises(OnPurposeError):
            beat_in_vain(database)
        beat(database, "three")
    assert beats(database) == 2


def test_afterwards_transactions_are_their_own_again(database: Database) -> None:
    with database.as_one():
        beat(database, "one")
    with pytest.raises(OnPurposeError):
        beat_in_vain(database)
    assert beats(database) == 1


def test_another_thread_is_not_part_of_it(database: Database) -> None:
    seen: list[int] = []
    with database.as_one():
        beat(database, "one")
        thread = Thread(target=lambda: seen.append(beats(database)))
        thread.start()
        thread.join()
    assert seen == [0]
