"""The claim of the next recordings reads live tasks only, however many have ended."""

from typing import Any

import pytest
from sqlalchemy import event

from automation_pipeline.storage.database import Database
from automation_pipeline.transcription.queries.runs import claim_next


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_tasks_that_have_ended_are_not_looked_at(database: Database) -> None:
    asked: list[tuple[str, Any]] = []

    def keep(_connection: object, _cursor: object, statement: str, given: Any, *_: object) -> None:
        asked.append((statement, given))

    with database.transaction() as session:
        connection = session.connection()
        event.listen(connection, "before_cursor_execute", keep)
        claim_next(session, "me", 5, lease_seconds=30, per_fiche=5)
        event.remove(connection, "before_cursor_execute", keep)
        [(statement, given)] = asked
        plan = [
            str(step)
            for step in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given).all()
        ]
    scans = [step for step in plan if "SCAN transcription_tasks" in step]
    assert scans
    assert all("ix_transcription_tasks_live" in step for step in scans)
