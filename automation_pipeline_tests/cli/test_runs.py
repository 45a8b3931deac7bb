"""Runs from the command line: listed, shown fiche by fiche, and what they wrote down."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.automation.domain.outcomes import LedgerMove
from automation_pipeline.automation.domain.run import OutcomeStatus
from automation_pipeline.automation.store.ledger import open_ledger, record_moves
from automation_pipeline.automation.store.runs import write_log
from automation_pipeline.automation.tables import RunRow
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal

STARTED = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
FICHES = ["1", "2", "3", "4"]
MOVES = [
    LedgerMove("3", OutcomeStatus.IGNORED, ignore_reason="Fiche not found (404)"),
    LedgerMove("1", OutcomeStatus.SUCCESSFUL, recordings_count=3),
    LedgerMove("2", OutcomeStatus.FAILED, error="The CRM answered [/503] for fiche 2."),
]


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


@pytest.fixture
def run_id(terminal: Terminal) -> str:
    """A run that ended, with one fiche of every kind."""
    run_id = terminal.json("schedules", "run-now", terminal.create())["run_id"]
    with terminal.database.transaction() as session:
        row = session.get_one(RunRow, int(run_id))
        row.status, row.started_at, row.completed_at = "partial", STARTED, STARTED + timedelta(seconds=9)
        row.duration_ms, row.selected_fiches, row.total_fiches = 9_040, 3, 2
        row.successful_fiches, row.failed_fiches, row.ignored_fiches = 1, 1, 1
        open_ledger(session, row.id, FICHES, len(FICHES), STARTED)
        record_moves(session, row.id, MOVES, STARTED)
        write_log(session, row.id, STARTED, "info", "Selected 3 fiches [for] [/today]", {"fiches": 3})
        write_log(session, row.id, STARTED + timedelta(seconds=9), "warning", "One failed")
    return run_id


def test_a_run_is_shown_with_its_outcomes_in_the_order_of_selection(terminal: Terminal, run_id: str) -> None:
    shown = terminal.json("runs", "show", run_id)
    assert (shown["id"], shown["status"], shown["startedAt"]) == (run_id, "partial", "2026-05-04T10:00:00.000Z")
    assert (shown["selectedFiches"], shown["successfulFiches"], shown["ignoredFiches"]) == (3, 1, 1)
    assert [(fiche["ficheId"], fiche["status"]) for fiche in shown["fiches"]] == [
        ("1", "successful"),
        ("2", "failed"),
        ("3", "ignored"),
        ("4", "pending"),
    ]
    assert shown["fiches"][0]["recordingsCount"] == 3
    assert shown["fiches"][1]["error"] == "The CRM answered [/503] for fiche 2."
    assert shown["fiches"][2]["ignoreReason"] == "Fiche not found (404)"


def test_people_see_the_same(terminal: Terminal, run_id: str) -> None:
    ended = terminal.run("runs", "show", run_id)
    assert (ended.code, ended.err) == (0, "")
    said = " ".join(ended.out.split())
    for fact in (
        "run 1 of schedule 1, manual",
        "seconds 9.0",
        "3 selected = 1 successful + 1 failed + 1 ignored",
        "1 successful 3",
        "2 failed The CRM answered [/503] for fiche 2.",
        "3 ignored Fiche not found (404)",
    ):
        assert fact in said


def test_the_log_is_told_oldest_first(terminal: Terminal, run_id: str) -> None:
    assert terminal.json("runs", "logs", run_id) == {
        "logs": [
            {
                "timestamp": "2026-05-04T10:00:00+00:00",
                "level": "info",
                "message": "Selected 3 fiches [for] [/today]",
                "metadata": {"fiches": 3},
            },
            {
                "timestamp": "2026-05-04T10:00:09+00:00",
                "level": "warning",
                "message": "One failed",
                "metadata": {},
            },
        ]
    }
    assert terminal.run("runs", "logs", run_id).out.splitlines() == [
        "10:00:00  info     Selected 3 fiches [for] [/today]",
        "10:00:09  warning  One failed",
    ]


def test_runs_are_listed_newest_first_and_can_be_narrowed(terminal: Terminal) -> None:
    first, second = terminal.create(), terminal.create()
    for schedule_id in (first, second, first):
        terminal.json("schedules", "run-now", schedule_id)

    def listed(*options: str) -> list[str]:
        return [run["id"] for run in terminal.json("runs", "list", *options)["runs"]]

    assert listed() == ["3", "2", "1"]
    assert listed("--schedule", first) == ["3", "1"]
    assert listed("--limit", "1") == ["3"]
    assert listed("--limit", "1", "--offset", "1") == ["2"]
    assert listed("--offset", "3") == []
    assert listed("--schedule", "99") == []


def test_the_table_fits_a_narrow_terminal_without_leaving_anything_out(terminal: Terminal, run_id: str) -> None:
    header, row = terminal.run("runs", "list").out.splitlines()
    assert " ".join(header.split()) == "id schedule status started (UTC) seconds fiches ok failed ignored"
    assert " ".join(row.split()) == "1 1 partial 2026-05-04 10:00 9.0 3 1 1 1"
    assert max(len(header), len(row)) <= 80


def test_a_run_that_has_selected_nothing_yet_shows_no_table(terminal: Terminal) -> None:
    run_id = terminal.json("schedules", "run-now", terminal.create())["run_id"]
    assert "0 selected" in terminal.run("runs", "show", run_id).out
    assert "outcome" not in terminal.run("runs", "show", run_id).out
    assert terminal.run("runs", "logs", run_id).out == ""
