"""Fixtures: a terminal, an API on a socket, and stored entities of every kind."""

from collections.abc import Iterator

import pytest

from automation_pipeline.api import health as checks
from automation_pipeline.automation.queries.runs import write_log
from automation_pipeline.automation.tables import NotificationRow, RunRow
from automation_pipeline_tests.audits.days import answer_by_transcript
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.automation.reports import make_reported_run
from automation_pipeline_tests.cli.remote.served import TOKEN, RemoteTerminal, served_over
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel


@pytest.fixture
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    # Loading the definitions takes seconds and a process.
    monkeypatch.setattr(checks, "_dagster", lambda _: "definitions load; steps run in_process")
    with open_terminal(request) as terminal:
        terminal.export(API_AUTH_TOKENS=TOKEN, COLUMNS="200")
        yield terminal


@pytest.fixture
def remote(terminal: Terminal) -> Iterator[RemoteTerminal]:
    with served_over(terminal.folder / "automation.db") as url:
        yield RemoteTerminal(terminal, url)


@pytest.fixture
def harness(terminal: Terminal, clock: FakeClock) -> AuditHarness:
    return AuditHarness(terminal.database, clock, model=FakeLanguageModel(answer_by_transcript))


@pytest.fixture
def stored(harness: AuditHarness) -> AuditHarness:
    """Store an ended run with notifications, two audits of which one is deleted, and a token."""
    run_id = make_reported_run(harness)
    now = harness.clock.now()
    with harness.database.transaction() as session:
        row = session.get_one(RunRow, run_id)
        row.status, row.phase, row.completed_at, row.duration_ms = "partial", None, now, 1500
        row.total_fiches, row.successful_fiches, row.failed_fiches, row.ignored_fiches = 3, 2, 1, 1
        row.error_details = {"failed_days": ["2026-02-02"]}
        row.selection_summary = {"picked": 4, "days": ["2026-02-03"]}
        for number in range(5):
            write_log(
                session,
                run_id,
                now,
                "warning" if number % 2 else "info",
                f"Line [{number}]",
                {"number": number},
            )
        message = {
            "run_id": run_id,
            "channel": "email",
            "payload": {},
            "attempts": 2,
            "created_at": now,
        }
        session.add(NotificationRow(**message, target="a@example.test", status="sent", sent_at=now))
        session.add(
            NotificationRow(
                **message, target="b@example.test", status="failed", last_error="refused"
            )
        )
    return harness
