"""The transcription log of a fiche, filtered by run, level and time."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import insert

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import WorkflowLogRow
from automation_pipeline.transcription.queries.recordings import parse_log_query, transcription_logs
from automation_pipeline_tests.audits.archive import Archive
from automation_pipeline_tests.cases import every_case

AT = datetime(2026, 2, 3, 23, 30, tzinfo=UTC)  # already the 4th in Paris
PARIS = ZoneInfo("Europe/Paris")


@pytest.fixture
def logged(database: Database) -> Database:
    lines = [
        ("900", "run-1", "info", "START", 0),
        ("900", "run-1", "error", "refused", 1),
        ("900", "run-2", "info", "again", 3600),
        ("901", "run-3", "info", "another fiche", 0),
    ]
    common = {"workflow": "transcription", "entity_type": "fiche", "data": {"n": 1}}
    rows = [
        {
            "entity_id": fiche,
            "trace_id": run,
            "level": level,
            "message": message,
            "created_at": AT + timedelta(seconds=later),
        }
        for fiche, run, level, message, later in lines
    ]
    rows.append({**rows[0], "workflow": "audit", "message": "of an audit"})
    with database.transaction() as session:
        session.execute(insert(WorkflowLogRow), [{**common, **row} for row in rows])
    return database


def messages(database: Database, fiche_id: str = "900", **given: str) -> list[object]:
    with database.reading() as session:
        lines, total = transcription_logs(session, fiche_id, parse_log_query(given), PARIS)
    assert "limit" in given or total == len(lines)
    return [line["message"] for line in lines]


@every_case(
    ("given", "expected"),
    [
        ({}, ["START", "refused", "again"]),
        ({"run_id": "run-1"}, ["START", "refused"]),
        ({"trace_id": "run-2"}, ["again"]),
        ({"run_id": "run-3"}, []),
        ({"level": "error"}, ["refused"]),
        ({"since": "2026-02-04"}, ["START", "refused", "again"]),
        ({"since": "2026-02-03T23:30:01Z"}, ["refused", "again"]),
        ({"until": "2026-02-03T23:30:01Z"}, ["START", "refused"]),
        ({"until": "2026-02-03"}, []),
        ({"limit": "1", "offset": "1"}, ["refused"]),
        ({"level": "", "since": ""}, ["START", "refused", "again"]),
    ],
)
def test_log_lines_are_filtered_by_the_query(
    logged: Database, given: dict[str, str], expected: list[str]
) -> None:
    assert messages(logged, **given) == expected


def test_a_log_line_has_all_fields(logged: Database) -> None:
    with logged.reading() as session:
        [line], _ = transcription_logs(session, "901", parse_log_query({}), PARIS)
    assert line == {
        "id": line["id"], "workflow": "transcription", "level": "info", "entity_type": "fiche", "entity_id": "901",
        "trace_id": "run-3", "dagster_run_id": None, "step_name": None, "message": "another fiche", "data": {"n": 1},
        "created_at": "2026-02-03T23:30:00.000Z",
    }  # fmt: skip


def test_only_an_unknown_fiche_is_not_found(logged: Database) -> None:
    Archive(logged).put("77")
    assert messages(logged, "77") == []
    with pytest.raises(NotFoundError, match="Fiche 78 not found"):
        messages(logged, "78")
