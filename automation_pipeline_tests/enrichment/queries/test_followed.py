"""How many requests stand, told at once: each with its own numbers, its status and what is known of
its company."""

import pytest
from sqlalchemy import event

from automation_pipeline.enrichment.queries.requests import request_statuses
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.defs.enrichment.register_services import an_office

SIRENS = ("552032534", "732829320", "356000000", "552032534")


def test_every_request_is_told_by_as_many_queries_however_many_there_are(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = an_office(database, monkeypatch)
    asked = [office.ask(siren).request_id for siren in SIRENS]
    statements: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
    counts = []
    for ids in (asked[:1], asked):
        statements.clear()
        with database.reading() as session:
            told = request_statuses(session, ids)
        counts.append(sum("SELECT" in one for one in statements))
    assert [one.request_id for one in told] == asked
    assert [(one.siren, one.is_running, one.company) for one in told] == [
        (siren, True, None) for siren in SIRENS
    ]
    assert counts[0] == counts[1]
    assert [one.open_job_id for one in told] == [1, 2, 3, 1]


def test_nothing_is_told_of_requests_that_are_not_there(database: Database) -> None:
    with database.reading() as session:
        assert list(request_statuses(session, [99])) == list(request_statuses(session, [])) == []
