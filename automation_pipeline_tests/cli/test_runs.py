"""Tests of `automation runs`: list, logs, cancel, and retry; see also test_run_outcomes."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from automation_pipeline.automation.models.runs import LedgerMove, OutcomeStatus
from automation_pipeline.automation.queries.ledger import open_ledger, record_moves
from automation_pipeline.automation.queries.runs import write_log
from automation_pipeline.automation.tables import RunRow
from automation_pipeline_tests.cli.terminal import Terminal, during_pauses, open_terminal

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
    """Create an ended run with every kind of fiche outcome."""
    run_id = terminal.json("schedules", "run-now", terminal.create())["run_id"]
    with terminal.database.transaction() as session:
        row = session.get_one(RunRow, int(run_id))
        row.status, row.started_at, row.completed_at = (
            "partial",
            STARTED,
            STARTED + timedelta(seconds=9),
        )
        row.duration_ms, row.selected_fiches, row.total_fiches = 120_040, 3, 2
        row.successful_fiches, row.failed_fiches, row.ignored_fiches = 1, 1, 1
        open_ledger(session, row.id, FICHES, len(FICHES), STARTED)
        record_moves(session, row.id, MOVES, STARTED)
        write_log(
            session, row.id, STARTED, "info", "Selected 3 fiches [for] [/today]", {"fiches": 3}
        )
        write_log(session, row.id, STARTED + timedelta(seconds=9), "warning", "One failed")
    return run_id


def test_the_log_is_listed_oldest_first(terminal: Terminal, run_id: str) -> None:
    assert terminal.json("runs", "logs", run_id) == {
        "logs": [
            {
                "id": "1",
                "timestamp": "2026-05-04T10:00:00.000Z",
                "level": "info",
                "message": "Selected 3 fiches [for] [/today]",
                "metadata": {"fiches": 3},
            },
            {
                "id": "2",
                "timestamp": "2026-05-04T10:00:09.000Z",
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


def test_runs_are_listed_newest_first_and_can_be_filtered(terminal: Terminal) -> None:
    first, second = terminal.create(), terminal.create()
    for schedule_id in (first, second):
        terminal.json("schedules", "run-now", schedule_id)
    terminal.json("runs", "cancel", "1", "--yes")
    terminal.json("schedules", "run-now", first)

    def listed(*options: str) -> list[str]:
        return [run["id"] for run in terminal.json("runs", "list", *options)["runs"]]

    assert listed() == ["3", "2", "1"]
    assert listed("--schedule", first) == ["3", "1"]
    assert listed("--limit", "1") == ["3"]
    assert listed("--limit", "1", "--offset", "1") == ["2"]
    assert listed("--offset", "3") == []
    assert listed("--schedule", "99") == []
    terminal.json("runs", "cancel", "2", "--yes")
    assert listed("--status", "cancelled") == ["2", "1"]
    assert listed("--status", "cancelled", "--status", "pending") == ["3", "2", "1"]
    assert listed("--status", "running") == []


def test_the_table_fits_a_narrow_terminal_without_losing_data(
    terminal: Terminal, run_id: str
) -> None:
    header, row = terminal.run("runs", "list").out.splitlines()
    assert (
        " ".join(header.split())
        == "id schedule status started (UTC) seconds fiches ok failed ignored"
    )
    assert " ".join(row.split()) == "1 1 partial 2026-05-04 10:00 120.0 3 1 1 1"
    assert max(len(header), len(row)) <= 80


def test_a_log_can_be_filtered_by_level(terminal: Terminal, run_id: str) -> None:
    assert [
        line["message"]
        for line in terminal.json("runs", "logs", run_id, "--level", "warning")["logs"]
    ] == ["One failed"]
    assert terminal.run("runs", "logs", run_id, "--level", "error").out == ""


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_log_is_followed_until_the_run_has_ended(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    run_id = int(terminal.json("schedules", "run-now", terminal.create())["run_id"])
    database = terminal.database

    def write(message: str) -> None:
        with database.transaction() as session:
            write_log(session, run_id, STARTED, "info", message)

    def end() -> None:
        with database.transaction() as session:
            write_log(session, run_id, STARTED, "info", "The last")
            session.get_one(RunRow, run_id).completed_at = STARTED

    first, second = partial(write, "The first"), partial(write, "The second")
    during_pauses(monkeypatch, first, lambda: None, second, end)
    ended = terminal.run("runs", "logs", str(run_id), "--follow", *flags)
    assert ended.code == 0
    document = (
        [line["message"] for line in json.loads(ended.out)["logs"]]
        if flags
        else ended.out.splitlines()
    )
    assert [line.removeprefix("10:00:00  info     ") for line in document] == [
        "The first",
        "The second",
        "The last",
    ]


def test_a_run_is_cancelled_with_its_reason(terminal: Terminal) -> None:
    run_id = terminal.json("schedules", "run-now", terminal.create())["run_id"]
    assert terminal.json("runs", "cancel", run_id, "--reason", "wrong day", "--yes") == {
        "run_id": run_id,
        "status": "cancelled",
        "error": "Cancelled by an operator: wrong day",
    }
    ended = terminal.run("runs", "cancel", run_id)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == f"Run {run_id} has already ended (cancelled).\n"


@pytest.mark.parametrize(
    ("answer", "flags", "code", "status"),
    [
        (b"y\n", [], 0, "cancelled"),
        (b"n\n", [], 1, "pending"),
        (b"", ["--yes"], 0, "cancelled"),
        (b"y\n", ["--json"], 0, "cancelled"),
    ],
)
def test_cancelling_a_run_asks_for_confirmation(
    terminal: Terminal, answer: bytes, flags: list[str], code: int, status: str
) -> None:
    run_id = terminal.json("schedules", "run-now", terminal.create())["run_id"]
    ended = terminal.run("runs", "cancel", run_id, *flags, given=answer, is_interactive=True)
    assert ended.code == code
    assert ("Cancel run 1?" in ended.err) == ("--yes" not in flags)
    assert "Cancel run" not in ended.out, "the question is not part of a JSON document"
    assert terminal.json("runs", "show", run_id)["status"] == status


def test_failed_fiches_are_retried_in_a_new_run(terminal: Terminal, run_id: str) -> None:
    assert terminal.json("runs", "retry", run_id) == {
        "run_id": "2",
        "retry_of_run_id": run_id,
        "schedule_id": "1",
        "status": "pending",
    }
    shown = terminal.json("runs", "show", "2")
    assert (shown["trigger"], shown["retryOfRunId"]) == ("retry", run_id)
    terminal.json("runs", "cancel", "2", "--yes")
    output = terminal.run("runs", "retry", run_id).out
    assert (
        output
        == "Run 3 is requested, for the failed fiches of run 1: `automation runs watch 3` follows it.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["list", "--status", "ended"],
            2,
            "Invalid value for '--status': Value error, 'ended' is not one of",
        ),
        (["list", "--limit", "0"], 2, "Invalid value for '--limit'"),
        (["show", "99"], 1, "Run 99 not found."),
        (["logs", "99", "--follow"], 1, "Run 99 not found."),
        (
            ["logs", "1", "--level", "loud"],
            2,
            "Invalid value for '--level': Value error, 'loud' is not one of",
        ),
        (["watch", "99"], 1, "Run 99 not found."),
        (["watch", "x"], 2, "Invalid value for 'run_id'"),
        (["cancel", "2"], 2, "Standard input is not a terminal: add --yes to cancel run 2."),
        (["cancel", "99", "--yes"], 1, "Run 99 not found."),
        (
            ["cancel", "2", "--yes", "--reason", "x" * 501],
            2,
            "The run is not cancelled: reason: is longer than 500 characters.",
        ),
        (["retry", "2"], 1, "Run 2 is still pending: wait for its end, or cancel it first."),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_impossible_operations_are_rejected_in_one_sentence(
    terminal: Terminal, run_id: str, arguments: list[str], code: int, message: str, flags: list[str]
) -> None:
    for number, schedule_id in (("2", "1"), ("3", terminal.create())):
        assert terminal.json("schedules", "run-now", schedule_id)["run_id"] == number
    terminal.json("runs", "cancel", "3", "--yes")
    ended = terminal.run("runs", *arguments, *flags)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(message)
    assert ended.err.count("\n") == 1
