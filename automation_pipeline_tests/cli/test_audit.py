"""Tests of `automation audit`: a request prints its id, and a followed audit its evidence."""

import json
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import select

from automation_pipeline.storage.run_requests import RunRequestRow, mark_refused
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.cli.terminal import Terminal, during_pauses, open_terminal
from automation_pipeline_tests.fakes.clock import FakeClock


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


@pytest.fixture
def harness(terminal: Terminal, clock: FakeClock) -> AuditHarness:
    return AuditHarness(terminal.database, clock)


def requests(terminal: Terminal) -> list[RunRequestRow]:
    with terminal.database.reading() as session:
        return list(session.scalars(select(RunRequestRow).order_by(RunRequestRow.id)))


def test_one_fiche_is_one_request(terminal: Terminal, harness: AuditHarness) -> None:
    config = harness.configure()
    filed = terminal.json("audit", "1900417", "--config", str(config), "--tools")
    [request] = requests(terminal)
    assert filed == {
        "batch_id": None,
        "audits": [{"fiche_id": "1900417", "tracking_id": request.request_key}],
    }
    assert (request.job, request.config["use_rlm"], request.config["trigger_source"]) == (
        "audit_fiche",
        True,
        "cli",
    )


def test_several_fiches_are_a_batch(terminal: Terminal, harness: AuditHarness) -> None:
    filed = terminal.json("audit", "7", "8", "7", "--config", str(harness.configure()))
    assert [one["tracking_id"] for one in filed["audits"]] == [
        f"batch-{filed['batch_id']}-audit-{fiche}-1" for fiche in ("7", "8")
    ]


def run_requested_audits(harness: AuditHarness, terminal: Terminal) -> None:
    for request in requests(terminal):
        harness.audit(str(request.config["fiche_id"]), 1, request.request_key)


def test_a_followed_audit_shows_its_result_with_quotations(
    terminal: Terminal, harness: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.configure(steps=2)
    harness.sell("1900417")
    during_pauses(monkeypatch, *[lambda: run_requested_audits(harness, terminal)] * 3)
    ended = terminal.run("audit", "1900417", "--config", "1", "--wait")
    assert (ended.code, ended.err) == (0, "")
    assert "EXCELLENT" in ended.out
    assert "cet appel est enregistré" in ended.out


def test_several_followed_audits_are_shown_as_a_table(
    terminal: Terminal, harness: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.configure(steps=1)
    harness.sell("1900417")
    harness.sell("1900418", text="")
    during_pauses(monkeypatch, *[lambda: run_requested_audits(harness, terminal)] * 3)
    document = terminal.json("audit", "1900417", "1900418", "--config", "1", "--wait", code=1)
    assert [audit["status"] for audit in document["audits"]] == ["completed", "failed"]


def test_a_rejected_request_is_reported(
    terminal: Terminal, harness: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.configure(steps=1)

    def refuse() -> None:
        with terminal.database.transaction() as session:
            mark_refused(
                session,
                requests(terminal)[0].request_key,
                "LLM API key not configured (set LLM_API_KEY)",
            )

    during_pauses(monkeypatch, *[refuse] * 3)
    ended = terminal.run("audit", "1900417", "--config", "1", "--wait")
    assert (ended.code, ended.err) == (1, "LLM API key not configured (set LLM_API_KEY).\n")


NO_KEY = "LLM API key not configured (set LLM_API_KEY)"


def refuse_first_then_run_others(terminal: Terminal, harness: AuditHarness) -> Callable[[], None]:
    """Reject the first request, then carry out one of the others per pause."""
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1
        first, *others = requests(terminal)
        if pauses == 1:
            with terminal.database.transaction() as session:
                mark_refused(session, first.request_key, NO_KEY)
        elif len(others) >= pauses - 1:
            other = others[pauses - 2]
            harness.audit(str(other.config["fiche_id"]), 1, other.request_key)

    return pause


def test_a_rejected_audit_does_not_stop_following_the_others(
    terminal: Terminal, harness: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.configure(steps=1)
    for fiche in ("7", "8", "9"):
        harness.sell(fiche)
    during_pauses(monkeypatch, *[refuse_first_then_run_others(terminal, harness)] * 3)
    document = terminal.json("audit", "7", "8", "9", "--config", "1", "--wait", code=1)
    first, *others = document["audits"]
    assert first == {
        "fiche_id": "7", "tracking_id": first["tracking_id"], "audit_id": None, "status": "failed", "niveau": None,
        "score_percentage": None, "failed_steps": None, "error": NO_KEY,
    }  # fmt: skip
    assert [(one["fiche_id"], one["status"], one["audit_id"]) for one in others] == [
        ("8", "completed", "1"),
        ("9", "completed", "2"),
    ]


def test_a_rejected_audit_is_a_row_in_the_table(
    terminal: Terminal, harness: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.configure(steps=1)
    harness.sell("8")
    during_pauses(monkeypatch, *[refuse_first_then_run_others(terminal, harness)] * 3)
    ended = terminal.run("audit", "7", "8", "--config", "1", "--wait")
    assert (ended.code, ended.err) == (1, "")
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["7", "failed", "LLM"] in [row[:3] for row in rows]
    assert ["1", "8", "completed", "EXCELLENT", "100.00", "%"] in rows


def test_a_single_rejected_audit_is_also_printed_as_json(
    terminal: Terminal, harness: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.configure(steps=1)
    during_pauses(monkeypatch, *[refuse_first_then_run_others(terminal, harness)] * 3)
    ended = terminal.run("audit", "7", "--config", "1", "--wait", "--json")
    assert (ended.code, ended.error and ended.error["message"]) == (1, NO_KEY)
    document = json.loads(ended.out)
    assert [(one["status"], one["error"], one["audit_id"]) for one in document["audits"]] == [
        ("failed", NO_KEY, None)
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("audit --config 1", 2, "Missing argument 'fiche_ids'"),
        ("audit 7", 2, "Missing option '--config'"),
        ("audit abc --config 1", 2, "A fiche id is a number, unlike abc."),
        ("audit 7 --config none", 2, "Invalid value for '--config'"),
        ("audit 7 --config 77", 1, "Audit config 77 not found."),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(
    terminal: Terminal, arguments: str, code: int, sentence: str
) -> None:
    ended = terminal.run(*arguments.split())
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(sentence)
    assert len(ended.err.splitlines()) == 1
