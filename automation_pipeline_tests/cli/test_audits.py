"""Tests of `automation audits`: list, show, override, and rerun audits; reject invalid input."""

import asyncio
import io
import re
from collections.abc import Iterator

import pytest
from rich.console import Console
from sqlalchemy import select

from automation_pipeline.audits.commands import rendering
from automation_pipeline.audits.models.audits import Rerun, StepLocation
from automation_pipeline.audits.models.chat import Question, Reply
from automation_pipeline.audits.reviews import record_review, run_rerun
from automation_pipeline.cli import output
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.storage.run_requests import RunRequestRow, mark_refused
from automation_pipeline_tests.audits.configurations import step_document
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.audits.reviewers import set_state
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.cli.terminal import Terminal, during_pauses, open_terminal
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import USAGE, FakeLanguageModel, StepInPrompt, step_answer


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


@pytest.fixture(autouse=True)
def harness(terminal: Terminal, clock: FakeClock) -> AuditHarness:
    """Audit 1 has a critical step with one ABSENT control point, and a step that the call does not deal with."""

    def answer(question: Question) -> Reply | Exception:
        if StepInPrompt.of(question).position == 2:
            return step_answer(
                question,
                statuts="ABSENT",
                score=0,
                traite=False,
                commentaire_global="No [goodbye].",
            )
        return step_answer(question, statuts=["PRESENT", "ABSENT"], score=4)

    harness = AuditHarness(terminal.database, clock, model=FakeLanguageModel(answer))
    harness.sell("1900417")
    steps = [
        step_document(1, name="Greeting [1]", isCritical=True, weight=8),
        step_document(2, name="Goodbye", weight=2),
    ]
    harness.replace_config("Sales", steps)
    harness.audit("1900417", 1, trigger_source="api")
    return harness


def request_key(terminal: Terminal) -> str:
    with terminal.database.reading() as session:
        return session.scalars(select(RunRequestRow.request_key)).one()


def test_the_list_shows_latest_versions_or_all(terminal: Terminal, harness: AuditHarness) -> None:
    harness.audit("1900417", 1, "audit-2")
    listed = terminal.json("audits", "list")
    assert ([audit["id"] for audit in listed["audits"]], listed["total"]) == (["2"], 1)
    everything = terminal.json("audits", "list", "--all-versions")
    assert [(audit["id"], audit["isLatest"]) for audit in everything["audits"]] == [
        ("2", True),
        ("1", False),
    ]
    for flags, ids in [
        (["--fiche", "1900417", "--fiche", "7"], ["2"]),
        (["--fiche", "7"], []),
        (["--config", "2"], []),
        (["--status", "completed"], ["2"]),
        (["--status", "running", "--status", "failed"], []),
    ]:
        assert [audit["id"] for audit in terminal.json("audits", "list", *flags)["audits"]] == ids
    lines = terminal.run("audits", "list", "--all-versions", "--limit", "1").out.splitlines()
    assert lines[1].split()[:7] == ["2", "1900417", "Sales", "REJET", "40.00", "%", "0/1"]
    assert lines[2] == "1 of 2 audits."
    assert "REJET (old)" in terminal.run("audits", "list", "--all-versions").out


SHOWN = """\
verdict        {verdict}
audit          1, completed
fiche          1900417  Odile MARTEL
configuration  1  Sales
steps          1 dealt with, 1 not
calls          1 recordings, 1 chunks, transcript by prompt
transcripts    1 of 1
tokens         {tokens}
started        {started}
ended          {ended}
asked for by   api
step  name            verdict       score  comment
1     Greeting [1] *  {first}
2     Goodbye         {second}
* critical: the audit is rejected unless it is CONFORME
"""


def unpadded(text: str) -> str:
    """The lines without the padding of the table's last column."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def test_show_prints_the_result_first_and_then_every_step(
    terminal: Terminal, harness: AuditHarness
) -> None:
    ended = terminal.run("audits", "show", "1")
    assert (ended.code, ended.err) == (0, "")
    row = harness.row()
    assert row.started_at is not None
    assert row.completed_at is not None
    assert unpadded(ended.out) == SHOWN.format(
        verdict="REJET, 40.00 %, 0/1 critical steps passed",
        tokens=2 * USAGE.total_tokens,
        started=iso(row.started_at),
        ended=iso(row.completed_at),
        first="PARTIEL       4/8    Étape analysée.",
        second="NON_CONFORME  0/2    No [goodbye].",
    )


def test_every_control_point_is_shown_with_its_evidence(
    terminal: Terminal, harness: AuditHarness
) -> None:
    of_point = {
        "statut": "PRESENT",
        "commentaire": "They say it.",
        "reviewer": "qa",
        "reason": "At 00:12",
    }
    for location, given in (
        (StepLocation(1, 1, 2), of_point),
        (StepLocation(1, 2), {"conforme": "NON_CONFORME"}),
    ):
        record_review(location, given, database=harness.database)
    request = Rerun(rerun_id="r", location=StepLocation(1, 2, 1), instructions="Listen [again].")
    harness.model = FakeLanguageModel()
    asyncio.run(run_rerun(request, database=harness.database, judge=harness.judge))
    result = terminal.run("audits", "show", "1", "--steps").out
    steps = result.partition("unless it is CONFORME\n")[2]
    citation = "« Bonjour, cet appel est enregistré. » 00:00, call 1 (03/02/2026 10:14), speaker_0"
    assert (
        re.sub(r"\d{4}-\S+Z", "TIME", steps)
        == f"""
1  Greeting [1]: CONFORME, 8/8
  1. PRESENT  Name given
     Jugé PRESENT.
     {citation}
  2. PRESENT  Recording announced
     They say it.
  reviewed TIME by qa: control point 2, statut ABSENT -> PRESENT, the comment (At 00:12)

2  Goodbye: PARTIEL, 1/2
  1. PRESENT  Name given
     Jugé PRESENT.
     {citation}
  2. ABSENT  Recording announced
     Jugé ABSENT.
  reviewed TIME by an unknown reviewer: as it was
  judged again TIME: control point 1, statut ABSENT -> PRESENT, the comment, citations 0 -> 1, \
step_score 0 -> 1, step_conforme NON_CONFORME -> PARTIEL (Listen [again].)
"""
    )


def test_an_audit_is_printed_as_one_json_document(terminal: Terminal) -> None:
    shown = terminal.json("audits", "show", "1")
    assert (shown["id"], shown["niveau"], shown["trackingId"]) == ("1", "REJET", "audit-1")
    assert len(shown["resultData"]["audit"]["results"]["steps"]) == 2


def test_running_and_failed_audits_can_be_shown(terminal: Terminal, harness: AuditHarness) -> None:
    set_state(harness.database, 1, "running")
    result = terminal.run("audits", "show", "1", "--steps")
    assert result.code == 0
    assert "1, running" in result.out
    assert "verdict  " not in result.out.splitlines()[0]


def test_an_incomplete_audit_lists_what_is_missing(
    terminal: Terminal, harness: AuditHarness
) -> None:
    harness.model.fail_once(PermanentError("The model is [away]."))
    harness.set_options(steps_at_once=1)
    harness.audit("1900417", 1, "audit-2")
    result = terminal.run("audits", "show", "2").out
    assert "Audit incomplete: 1 of 2 steps judged: The model is [away]." in result
    assert any("transcripts" in line and "1 of 1" in line for line in result.splitlines())
    [first] = [line for line in result.splitlines() if line.startswith("1 ")]
    assert first.split()[3:6] == ["*", "not", "judged"]
    assert [audit["id"] for audit in terminal.json("audits", "list")["audits"]] == ["1"]
    listed = terminal.json("audits", "list", "--all-versions", "--status", "incomplete")["audits"]
    assert [(audit["id"], audit["scorePercentage"], audit["niveau"]) for audit in listed] == [
        ("2", None, "PENDING")
    ]


def test_a_step_and_a_control_point_can_be_overridden(terminal: Terminal) -> None:
    arguments = [
        "--step",
        "1",
        "--point",
        "2",
        "--statut",
        "present",
        "--comment",
        "They say it.",
        "--reviewer",
        "qa",
    ]
    document = terminal.json("audits", "review", "1", *arguments, "--reason", "At 00:12")
    assert (document["step"]["conforme"], document["audit"]["scorePercentage"]) == (
        "CONFORME",
        80.0,
    )
    [review] = document["step"]["human_review"]
    assert (review["by"], review["reason"], review["override"]["commentaire"]) == (
        "qa",
        "At 00:12",
        "They say it.",
    )
    arguments = ["--step", "2", "--conforme", "CONFORME", "--score", "2", "--dealt-with"]
    ended = terminal.run("audits", "review", "1", *arguments)
    assert ended.out == (
        "Step 2  Goodbye: CONFORME, 2/2\nAudit 1: EXCELLENT, 100.00 %, 1/1 critical steps passed\n"
    )
    result = terminal.run("audits", "show", "1", "--steps").out
    assert "by qa: control point 2, statut ABSENT -> PRESENT, the comment (At 00:12)\n" in result


def test_a_rerun_can_be_requested(terminal: Terminal) -> None:
    filed = terminal.json(
        "audits", "rerun", "1", "--step", "1", "--point", "2", "--instructions", "Listen."
    )
    assert filed == {
        "rerun_id": f"rerun-1-1-cp-2-{filed['event_id']}", "event_id": filed["event_id"], "audit_id": "1",
        "step_position": 1, "control_point_index": 2,
    }  # fmt: skip
    assert request_key(terminal) == filed["rerun_id"]
    assert "is requested" in terminal.run("audits", "rerun", "1", "--step", "1").out


def test_a_rerun_is_followed_to_its_end(
    terminal: Terminal, harness: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def carry_out() -> None:
        request = Rerun(rerun_id=request_key(terminal), location=StepLocation(1, 1))
        harness.model = FakeLanguageModel()
        asyncio.run(run_rerun(request, database=harness.database, judge=harness.judge))

    during_pauses(monkeypatch, carry_out)
    document = terminal.json("audits", "rerun", "1", "--step", "1", "--wait")
    assert (
        document["step"]["conforme"],
        document["audit"]["niveau"],
        document["step_position"],
    ) == (
        "CONFORME",
        "BON",
        1,
    )
    assert document["error"] is None


def test_a_failed_rerun_is_reported(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        with terminal.database.transaction() as session:
            mark_refused(session, request_key(terminal), "The model is away.")

    during_pauses(monkeypatch, refuse)
    ended = terminal.run("audits", "rerun", "1", "--step", "1", "--wait")
    assert (ended.code, ended.err) == (1, "The model is away.\n")


def test_a_failed_rerun_is_also_printed_as_json(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        with terminal.database.transaction() as session:
            mark_refused(session, request_key(terminal), "The model is away.")

    during_pauses(monkeypatch, refuse)
    document = terminal.json("audits", "rerun", "1", "--step", "1", "--wait", code=1)
    assert (document["error"], document["rerun_id"]) == (
        "The model is away.",
        request_key(terminal),
    )
    assert (document["step"]["conforme"], document["audit"]["niveau"]) == ("PARTIEL", "REJET")


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_prints_that_the_rerun_continues(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    during_pauses(monkeypatch)
    ended = terminal.run("audits", "rerun", "1", "--step", "1", "--wait", *flags)
    expected = "The rerun continues. `automation audits show 1 --steps` shows its result.\n"
    assert (ended.code, ended.err) == (130, expected)


def test_an_audit_can_be_deleted_and_restored(terminal: Terminal) -> None:
    assert terminal.json("audits", "delete", "1") == {"id": "1", "deleted": True}
    assert terminal.json("audits", "list")["total"] == 0
    assert terminal.json("audits", "list", "--all-versions")["total"] == 1
    assert "(deleted)" in terminal.run("audits", "show", "1").out
    assert terminal.run("audits", "restore", "1").out == "Audit 1 is restored.\n"
    assert terminal.json("audits", "list")["total"] == 1


@every_case(
    ("arguments", "code", "sentence"),
    [
        ("list --status done", 2, "Invalid value for '--status'"),
        ("list --limit 0", 2, "Invalid value for '--limit'"),
        ("list --config 0", 2, "Invalid value for '--config'"),
        ("show", 2, "Missing argument"),
        ("show x", 2, "Invalid value for 'audit_id'"),
        ("show 7", 1, "Audit 7 not found"),
        ("show 9223372036854775808", 2, "Invalid value for 'audit_id'"),
        ("review 1", 2, "Missing option '--step'"),
        ("review 1 --step 1", 2, "The review cannot be accepted: conforme: is required."),
        ("review 1 --step 1 --conforme YES", 2, "Invalid value for '--conforme'"),
        (
            "review 1 --step 1 --conforme PARTIEL --score 9",
            2,
            "The review cannot be accepted: score: must not be",
        ),
        (
            "review 1 --step 1 --statut PRESENT",
            2,
            "--statut and --comment apply to a control point",
        ),
        (
            "review 1 --step 1 --point 1 --score 3",
            2,
            "--conforme, --score and --dealt-with apply to a whole step",
        ),
        (
            "review 1 --step 1 --point 1",
            2,
            "The review cannot be accepted: A review of a control point gives",
        ),
        ("review 1 --step 9 --conforme PARTIEL", 1, "Audit step 1:9 not found."),
        ("review 7 --step 1 --conforme PARTIEL", 1, "Audit 7 not found."),
        ("rerun 1 --step 0", 2, "Invalid value for '--step'"),
        ("rerun 1 --step 1 --point 9", 1, "Audit control point 1:1:9 not found."),
        (
            f"rerun 1 --step 1 --instructions {'x' * 5001}",
            2,
            "The rerun cannot be accepted: instructions: must have",
        ),
        ("delete 7", 1, "Audit 7 not found."),
        ("restore 7", 1, "Audit 7 not found."),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(
    terminal: Terminal, arguments: str, code: int, sentence: str
) -> None:
    ended = terminal.run("audits", *arguments.split())
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(sentence)
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", ["review 1 --step 1 --conforme PARTIEL", "rerun 1 --step 1 --wait"]
)
def test_a_running_audit_cannot_be_changed(
    terminal: Terminal, harness: AuditHarness, arguments: str
) -> None:
    set_state(harness.database, 1, "running")
    ended = terminal.run("audits", *arguments.split())
    assert (ended.code, ended.err) == (
        1,
        "Audit 1 is running: only a completed audit can be changed.\n",
    )


def test_only_results_are_coloured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers and quoted text in sentences have no colour."""
    printed = io.StringIO()
    console = Console(file=printed, force_terminal=True, color_system="standard", soft_wrap=True)
    monkeypatch.setattr(output, "screen", console)
    output.say("Audit 12 of 'fiche' is [bold]deleted[/bold].")
    console.print(rendering.coloured("REJET"))
    console.print(rendering.coloured("unknown"))
    assert printed.getvalue().splitlines() == [
        "Audit 12 of 'fiche' is [bold]deleted[/bold].",
        "\x1b[31mREJET\x1b[0m",
        "unknown",
    ]
