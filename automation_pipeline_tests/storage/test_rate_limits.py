"""Pauses of callers during an outage of a provider."""

from datetime import timedelta

import pytest

from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.rate_limits import end_pause, is_paused, pause
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes
from automation_pipeline_tests.storage.processes import pause_once


def begin(database: Database, at_least: float = 0.0) -> None:
    with database.transaction() as session:
        pause(session, "pusher", first_seconds=2, cap_seconds=30, at_least=at_least)


def seconds(database: Database) -> float | None:
    with database.reading() as session:
        row = session.get(LeaseRow, "pause:pusher")
        return None if row is None else round((row.expires_at - row.acquired_at).total_seconds(), 1)


def end_early(database: Database) -> None:
    end(database, ago=timedelta())


def end(database: Database, *, ago: timedelta) -> None:
    with database.transaction() as session:
        row = session.get_one(LeaseRow, "pause:pusher")
        length = row.expires_at - row.acquired_at
        row.acquired_at, row.expires_at = (
            at - length - ago for at in (row.acquired_at, row.expires_at)
        )


def paused(database: Database) -> bool:
    with database.reading() as session:
        return is_paused(session, "pusher")


def test_each_pause_is_twice_the_previous_one_up_to_the_cap(database: Database) -> None:
    lengths = []
    for _ in range(6):
        begin(database)
        assert paused(database)
        lengths.append(seconds(database))
        end_early(database)
        assert not paused(database)
    assert lengths == [2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize(("asked", "lasts"), [(1, 2), (20, 20), (500, 500), (9999, 3600)])
def test_a_minimum_pause_can_be_requested_up_to_one_hour(
    database: Database, asked: float, lasts: float
) -> None:
    begin(database, at_least=asked)
    assert seconds(database) == lasts
    end_early(database)
    begin(database)
    assert seconds(database) == min(2 * lasts, 30)


def test_an_old_outage_does_not_lengthen_the_next_pause(database: Database) -> None:
    for _ in range(3):
        begin(database)
        end_early(database)
    begin(database)
    assert seconds(database) == 16
    end(database, ago=timedelta(seconds=61))
    begin(database)
    assert seconds(database) == 2


def test_a_success_resets_the_pause_length(database: Database) -> None:
    begin(database)
    end_early(database)
    with database.transaction() as session:
        end_pause(session, "pusher")
    begin(database)
    assert seconds(database) == 2


def test_concurrent_failures_start_one_pause(database_url: str, database: Database) -> None:
    run_in_processes(pause_once, *((database_url,) for _ in range(PROCESS_COUNT)))
    assert seconds(database) == 2
