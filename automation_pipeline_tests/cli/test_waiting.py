"""Tests of --wait, --timeout, and --here in every command that requests work."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from automation_pipeline import cli
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli import progress as waiting
from automation_pipeline.core.launching import DagsterFacts
from automation_pipeline.storage.monitoring import DAEMON, record_heartbeat
from automation_pipeline.storage.run_requests import mark_refused, offer_waiting
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal

CONFIGURATION = Path(__file__).parents[1] / "e2e" / "five_steps.json"


class IdleProbe:
    """A Dagster probe that immediately finds no daemon."""

    def begin(self) -> None: ...

    def facts(self) -> DagsterFacts:
        return DagsterFacts()


@pytest.fixture
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Return a terminal with immediate start timeouts."""
    monkeypatch.setattr(waiting, "START_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(Services, "dagster_probe", lambda _services: IdleProbe())
    with open_terminal(request) as terminal:
        yield terminal


@pytest.fixture
def commands(terminal: Terminal) -> dict[str, tuple[str, ...]]:
    schedule = terminal.create()
    config_id = terminal.json("audit-configs", "import", str(CONFIGURATION))["id"]
    terminal.export(RECHERCHE_ENTREPRISES_BASE_URL="http://127.0.0.1:9")
    return {
        "transcribe": ("transcribe", "7"),
        "audit": ("audit", "7", "--config", str(config_id)),
        "run-now": ("schedules", "run-now", schedule),
        "enrich": ("enrich", "552032534"),
    }


def test_without_a_daemon_every_command_fails_with_a_message(
    terminal: Terminal, commands: dict[str, tuple[str, ...]]
) -> None:
    wrong = []
    for name, arguments in commands.items():
        plain = terminal.run(*arguments, "--wait")
        terminal.run("runs", "cancel", "1", "--yes")
        as_json = terminal.run(*arguments, "--wait", "--json")
        message = as_json.error or {}
        sentence = (
            "Dagster's daemon has no heartbeat" in plain.err and len(plain.err.splitlines()) == 1
        )
        document = (
            message.get("code") == "NO_DAEMON"
            and "no heartbeat" in message["message"]
            and "details" in message
        )
        if (plain.code, as_json.code, as_json.out) != (1, 1, "") or not sentence or not document:
            wrong.append((name, plain, as_json))
    assert wrong == []


def test_command_startup_time_counts_towards_the_start_timeout(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "START_TIMEOUT_SECONDS", 60.0)
    monkeypatch.setattr(waiting, "MIN_START_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(cli, "STARTED_AT", time.monotonic() - 100)
    began = time.monotonic()
    ended = terminal.run("transcribe", "7", "--wait")
    assert (ended.code, "Nothing has started" in ended.err, time.monotonic() - began < 30) == (
        1,
        True,
        True,
    )


def test_a_rejected_request_is_reported_with_the_reason(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(probe: IdleProbe) -> None:
        with terminal.database.transaction() as session:
            record_heartbeat(session, DAEMON)
            [request] = offer_waiting(session, limit=9)
            mark_refused(session, request.key, "The run queue is closed.")

    monkeypatch.setattr(waiting, "PROBE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(IdleProbe, "begin", refuse)
    ended = terminal.run("transcribe", "7", "--wait", "--json")
    assert ended.code == 1
    assert ended.error
    assert "The run queue is closed" in ended.error["message"]


def test_a_timeout_ends_the_wait_but_not_the_work(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "START_TIMEOUT_SECONDS", 60.0)
    ended = terminal.run("transcribe", "7", "--timeout", "0.1", "--json")
    assert (ended.code, ended.error and ended.error["code"]) == (1, "TIMEOUT")
    assert ended.err == "Not done within 0.1 s; the work continues without this command.\n"


def test_the_here_option_is_rejected_with_a_remote_api(terminal: Terminal) -> None:
    ended = terminal.run("--api", "http://127.0.0.1:9", "--token", "t", "transcribe", "7", "--here")
    assert ended.code == 2
    assert "works only on the local machine" in ended.err


def test_errors_are_one_json_document_with_the_json_option(terminal: Terminal) -> None:
    wrong = []
    for arguments, code, exit_code in (
        ("runs show 77 --json", "NOT_FOUND", 1),
        ("transcribe abc --json", "VALIDATION_ERROR", 2),
        ("transcribe --json", "USAGE_ERROR", 2),
        ("schedules run-now 77 --json", "NOT_FOUND", 1),
    ):
        ended = terminal.run(*arguments.split())
        message = ended.error or {}
        if (ended.code, ended.out, message.get("code")) != (exit_code, "", code) or not message.get(
            "message"
        ):
            wrong.append((arguments, ended))
    assert wrong == []
