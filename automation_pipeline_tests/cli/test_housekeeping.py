"""Tests of `automation housekeeping`: dry run, deletion, and Dagster requests."""

from collections.abc import Iterator

import pytest

from automation_pipeline.automation.relay import RelayCounts
from automation_pipeline.cli import system
from automation_pipeline.storage.history import WorkflowLogRow
from automation_pipeline.storage.run_requests import offer_waiting
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal
from automation_pipeline_tests.retention.old_rows import OLD, add_row


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        with terminal.database.transaction() as session:
            for _ in range(3):
                add_row(session, WorkflowLogRow, created_at=OLD)
        yield terminal


def test_a_dry_run_counts_the_rows_that_housekeeping_deletes(terminal: Terminal) -> None:
    counted = terminal.json("housekeeping", "--dry-run")
    assert (counted["dry_run"], counted["total"], counted["rows"]["workflow_logs"]) == (True, 2, 2)
    assert terminal.json("housekeeping") == counted | {"dry_run": False}
    assert terminal.json("housekeeping")["total"] == 0


def test_text_output_is_in_sentences(terminal: Terminal) -> None:
    assert (
        terminal.run("housekeeping", "--dry-run").out.splitlines()[-1] == "2 rows would be deleted."
    )
    assert terminal.run("housekeeping").out.splitlines()[-2:] == [
        "2     workflow_logs",
        "2 rows deleted.",
    ]


def test_retention_days_are_configurable_with_a_minimum_of_one_week(terminal: Terminal) -> None:
    terminal.export(WORKFLOW_LOGS_KEEP_DAYS="0")
    assert terminal.json("housekeeping")["total"] == 0
    terminal.export(WORKFLOW_LOGS_KEEP_DAYS="6")
    ended = terminal.run("housekeeping")
    sentence = "WORKFLOW_LOGS_KEEP_DAYS cannot be used: it must be 7 days or more, or 0 to keep them for ever.\n"
    assert (ended.code, ended.err) == (2, sentence)


def test_each_command_files_its_own_dagster_request(terminal: Terminal) -> None:
    key = terminal.json("housekeeping", "--in-dagster")["request_key"]
    with terminal.database.transaction() as session:
        [request] = offer_waiting(session, limit=10)
    assert (request.key, request.job) == (key, "housekeeping")
    assert terminal.json("housekeeping", "--in-dagster")["request_key"] != key
    assert terminal.run("housekeeping", "--in-dagster", "--dry-run").code == 2


def test_one_relay_prints_what_it_delivered(terminal: Terminal) -> None:
    text = terminal.run("outbox", "relay", "--once").out
    assert text == "Relayed 0 events, tried 0 messages.\n"
    assert terminal.json("outbox", "relay", "--once") == {"events": 0, "messages": 0}


def test_the_relay_repeats_until_it_is_interrupted(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([RelayCounts(0, 0), RelayCounts(1, 2), RelayCounts(0, 0), RelayCounts(0, 3)])
    budgets: list[float | None] = []

    async def relay(*_: object, budget_seconds: float | None = None, **__: object) -> RelayCounts:
        budgets.append(budget_seconds)
        found = next(counts, None)
        if found is None:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(system, "relay_events", relay)
    monkeypatch.setattr(system, "RELAY_INTERVAL_SECONDS", 0.0)
    ended = terminal.run("outbox", "relay")
    assert (ended.code, ended.out.splitlines()) == (
        130,
        ["Relayed 1 events, tried 2 messages.", "Relayed 0 events, tried 3 messages."],
    )
    assert budgets == [None] * 5
    refused = terminal.run("outbox", "relay", "--json")
    assert (refused.code, refused.err) == (2, "--json prints one document: add --once.\n")
    counts = iter([RelayCounts(4, 5)])
    assert terminal.json("outbox", "relay", "--once") == {"events": 4, "messages": 5}
    assert budgets[5:] == [300.0]
