"""Heartbeats of processes, runs and steps."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from automation_pipeline.storage import monitoring
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import (
    ProcessHeartbeatRow,
    delete_step_heartbeats,
    end_step,
    heartbeat_of,
    record_step_heartbeat,
    seconds_since_heartbeat,
    step_heartbeats,
)

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def silence(database: Database) -> float | None:
    with database.reading() as session:
        return seconds_since_heartbeat(session, "daemon")


def stop(database: Database) -> None:
    with database.transaction() as session:
        session.get_one(ProcessHeartbeatRow, "daemon").beat_at = LONG_AGO


def test_heartbeats_are_written_at_most_once_per_interval(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(monitoring, "time", SimpleNamespace(monotonic=lambda: now[0]))
    beat = heartbeat_of(database, "daemon")
    assert silence(database) is None
    beat()
    assert (silence(database) or 0.0) < 600
    stop(database)
    now[0] += 4.9
    beat()
    assert (silence(database) or 0.0) > 86_400
    now[0] += 0.2
    beat()
    assert (silence(database) or 0.0) < 600


def shown(database: Database, dagster_run_id: str | None = None) -> list[tuple[str, str, str]]:
    with database.reading() as session:
        return sorted(
            (beat.dagster_run_id, beat.step_key, beat.worker)
            for beat in step_heartbeats(session, dagster_run_id)
        )


def test_a_repeated_heartbeat_updates_its_timestamp(database: Database) -> None:
    with database.transaction() as session:
        record_step_heartbeat(session, "d-1", "work[1]", "host:1")
    with database.reading() as session:
        first = step_heartbeats(session)[0]
    with database.transaction() as session:
        record_step_heartbeat(session, "d-1", "work[1]", "host:1")
    with database.reading() as session:
        second = step_heartbeats(session)[0]
    assert second.beat_at > first.beat_at
    assert first.now >= first.beat_at


def test_ending_a_step_keeps_heartbeats_of_other_steps_and_workers(database: Database) -> None:
    with database.transaction() as session:
        for run, step, worker in (
            ("d-1", "a", "host:1"),
            ("d-1", "b", "host:1"),
            ("d-2", "a", "host:1"),
        ):
            record_step_heartbeat(session, run, step, worker)
        record_step_heartbeat(session, "d-1", "a", "host:2")
        end_step(session, "d-1", "a", "host:1")
        end_step(session, "d-1", "b", "host:1")
    assert shown(database) == [("d-1", "a", "host:2"), ("d-2", "a", "host:1")]
    assert shown(database, "d-2") == [("d-2", "a", "host:1")]


def test_deleting_step_heartbeats_removes_all_steps_of_the_run(database: Database) -> None:
    with database.transaction() as session:
        for run, step in (("d-1", "a"), ("d-1", "b"), ("d-2", "a")):
            record_step_heartbeat(session, run, step, "host:1")
        delete_step_heartbeats(session, "d-1")
    assert shown(database) == [("d-2", "a", "host:1")]
