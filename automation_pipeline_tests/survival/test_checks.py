"""The checks find missing and pending rows, wrong totals, claims, and repeated calls."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from automation_pipeline.automation.tables import FicheResultRow, RunRow
from automation_pipeline.storage.claims import DatabaseClaims
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.factories import make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.survival.checks import ledger_faults, left_behind
from automation_pipeline_tests.survival.rounds import Snapshot

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


def ended_run(database: Database, *statuses: str, **fields: Any) -> int:
    values = {
        "status": "completed",
        "completed_at": NOW,
        "selected_at": NOW,
        "selected_fiches": len(statuses),
        "successful_fiches": statuses.count("successful"),
        "failed_fiches": statuses.count("failed"),
    }
    schedule_id = make_schedule(database, FakeClock(NOW)).id
    given = {
        "schedule_id": schedule_id,
        "trigger": "manual",
        "started_at": NOW,
        "config_snapshot": {},
    }
    times = {"created_at": NOW, "updated_at": NOW}
    with database.transaction() as session:
        run = RunRow(**{**given, **values, **fields})
        session.add(run)
        session.flush()
        for position, status in enumerate(statuses):
            columns = {
                "run_id": run.id,
                "fiche_id": str(position),
                "position": position,
                "batch": 0,
            }
            session.add(FicheResultRow(**columns, status=status, **times))
        return run.id


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("statuses", "fields", "noticed"),
    [
        (("successful", "failed"), {}, []),
        ((), {"selected_at": None, "status": "failed"}, []),
        (("successful",), {}, ["has rows for"]),
        (("successful", "pending"), {}, ["pending", "its rows are"]),
        (("successful", "failed"), {"failed_fiches": 0}, ["its rows are"]),
        (("successful", "failed"), {"completed_at": None, "status": "running"}, ["has not ended"]),
    ],
)
def test_an_incomplete_ledger_is_found(
    database: Database, statuses: tuple[str, ...], fields: dict[str, Any], noticed: list[str]
) -> None:
    run_id = ended_run(database, *statuses, **fields)
    with database.reading() as session:
        found = list(ledger_faults(session, run_id, ["0", "1"]))
    assert len(found) == len(noticed)
    assert all(words in sentence for words, sentence in zip(noticed, found, strict=True))


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_claims_and_unfinished_work_after_the_end_are_found(database: Database) -> None:
    leases = DatabaseClaims(database)
    with database.reading() as session:
        assert list(left_behind(session)) == []
    lease = leases.take("audit:1", "worker-1", 60)
    ended_run(database, status="running", completed_at=None)
    with database.reading() as session:
        assert list(left_behind(session)) == [
            "leases left behind: audit:1",
            "unfinished runs left behind: 1",
        ]
    assert lease
    leases.release(lease)
    with database.reading() as session:
        assert list(left_behind(session)) == ["unfinished runs left behind: 1"]


def test_only_calls_for_finished_work_count_as_repeated() -> None:
    at_the_fault = Snapshot(
        {"llm.complete 1/1"}, Counter({"llm.complete 1/1": 1, "llm.complete 1/2": 1})
    )
    assert at_the_fault.called_again(Counter({"llm.complete 1/1": 1, "llm.complete 1/2": 3})) == {}
    assert at_the_fault.called_again(Counter({"llm.complete 1/1": 2})) == {"llm.complete 1/1": 1}
