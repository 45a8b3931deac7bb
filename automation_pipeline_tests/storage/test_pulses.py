"""Signs of life are written by the database's clock, and not more often than they are needed."""

from datetime import UTC, datetime

import pytest

from automation_pipeline.storage import heartbeats as pulses
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.heartbeats import (
    ProcessHeartbeatRow,
    heartbeat_of,
    seconds_since_heartbeat,
)

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def silence(database: Database) -> float | None:
    with database.reading() as session:
        return seconds_since_heartbeat(session, "daemon")


def stop(database: Database) -> None:
    with database.transaction() as session:
        session.get_one(ProcessHeartbeatRow, "daemon").beat_at = LONG_AGO


def test_beats_are_written_only_every_few_seconds(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulses, "SHORTEST_INTERVAL_SECONDS", 600)
    beat = heartbeat_of(database, "daemon")
    assert silence(database) is None
    beat()
    assert (silence(database) or 0.0) < 600
    stop(database)
    beat()
    assert (silence(database) or 0.0) > 86_400
    monkeypatch.setattr(pulses, "SHORTEST_INTERVAL_SECONDS", 0)
    beat()
    assert (silence(database) or 0.0) < 600
