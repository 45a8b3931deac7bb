"""The transition log keeps the order of state changes and nothing of a failed transaction."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import Transition, TransitionRow, record_transitions

AT = datetime(2026, 5, 4, 10, 0, 0, 123456, tzinfo=UTC)
STARTED = Transition("run", "7", "queued", "running", "worker", AT)
ENDED = Transition("run", "7", "running", "failed", "watchdog", AT, reason="silent for 120 s")


def logged(database: Database) -> list[Transition]:
    with database.reading() as session:
        rows = session.scalars(select(TransitionRow).order_by(TransitionRow.id))
        return [
            Transition(
                row.machine,
                row.entity_id,
                row.from_state,
                row.to_state,
                row.actor,
                row.at,
                row.reason,
            )
            for row in rows
        ]


def test_transitions_are_stored_unchanged_and_in_order(database: Database) -> None:
    with database.transaction() as session:
        record_transitions(session, [STARTED, ENDED])
    with database.transaction() as session:
        record_transitions(session, [STARTED])
    assert logged(database) == [STARTED, ENDED, STARTED]


def record_and_fail(database: Database) -> None:
    with database.transaction() as session:
        record_transitions(session, [STARTED])
        session.flush()
        raise ZeroDivisionError


def test_a_failed_transaction_records_no_transition(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        record_and_fail(database)
    assert logged(database) == []
