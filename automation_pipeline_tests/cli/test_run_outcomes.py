"""Tests of one run as text and as JSON: outcomes with reasons, and watching to the end."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from automation_pipeline.automation.models.runs import FicheStage, LedgerMove, OutcomeStatus, Reason
from automation_pipeline.automation.queries.ledger import open_ledger, record_moves
from automation_pipeline.automation.rules.fiches import failed_move, ignored_move
from automation_pipeline.automation.runs import finalise_run, open_run
from automation_pipeline.automation.tables import (
    FicheResultRow,
    NotificationRow,
    RunPhaseRow,
    RunRow,
)
from automation_pipeline.core.clock import SystemClock
from automation_pipeline_tests.cli.terminal import Terminal, during_pauses, open_terminal
from automation_pipeline_tests.factories import make_launch

STARTED = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
FICHES = ["1", "2", "3", "4"]
MOVES = [
    ignored_move("3", Reason.NOT_FOUND, "Fiche not found (404)"),
    LedgerMove("1", OutcomeStatus.SUCCESSFUL, recordings_count=3, audits=1),
    LedgerMove(
        "2",
        OutcomeStatus.FAILED,
        error="The CRM answered [/503] for fiche 2.",
        reason=Reason.FETCH_FAILED,
    ),
]
SUMMARY = {
    "mode": "date_range",
    "dates": [f"2026-05-0{day}" for day in range(1, 8)],
    "dropped": {"audited": 2, "duplicates": 0},
    "revalidation_failures": [{"date": "2026-05-02", "error": "listed below"}],
    "empty_reason": None,
    "only_unaudited": False,
    "filters": {"groupes": ["NORD", "SUD"], "useRlm": True, "maxFiches": None},
}
ERROR_DETAILS = {
    "revalidation_failures": [{"date": "2026-05-02", "error": "503 [/x]"}],
    "stack": "Traceback",
}


def transcribed(session: Session, run_id: int, *fiche_ids: str) -> None:
    conditions = FicheResultRow.run_id == run_id, FicheResultRow.fiche_id.in_(fiche_ids)
    session.execute(update(FicheResultRow).where(*conditions).values(transcribed=True))


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


@pytest.fixture
def pending_id(terminal: Terminal) -> str:
    return terminal.json("schedules", "run-now", terminal.create())["run_id"]


@pytest.fixture
def run_id(terminal: Terminal, pending_id: str) -> str:
    """Create an ended run with every kind of fiche outcome."""
    with terminal.database.transaction() as session:
        row = session.get_one(RunRow, int(pending_id))
        row.status, row.started_at, row.completed_at = (
            "partial",
            STARTED,
            STARTED + timedelta(seconds=9),
        )
        row.duration_ms, row.selected_fiches, row.total_fiches = 120_040, 3, 2
        row.successful_fiches, row.failed_fiches, row.ignored_fiches = 1, 1, 1
        row.selection_summary, row.error_details = SUMMARY, ERROR_DETAILS
        open_ledger(session, row.id, FICHES, len(FICHES), STARTED)
        record_moves(session, row.id, MOVES, STARTED)
        transcribed(session, row.id, "1")
        session.add(
            NotificationRow(
                run_id=row.id, channel="webhook", target="https://example.org/[hook]", payload={}, status="failed",
                attempts=3, status_code=503, last_error="It answered 503", created_at=STARTED,
            )
        )  # fmt: skip
    return pending_id


def test_a_run_shows_the_duration_of_each_phase(terminal: Terminal, run_id: str) -> None:
    with terminal.database.transaction() as session:
        attempt = session.get_one(RunRow, int(run_id)).attempt
        for phase, seconds in (
            ("selection", 0),
            ("fetching", 1.25),
            ("auditing", 4),
            ("finalizing", 9),
        ):
            entered_at = STARTED + timedelta(seconds=seconds)
            session.add(
                RunPhaseRow(run_id=int(run_id), attempt=attempt, phase=phase, entered_at=entered_at)
            )
    output = terminal.run("runs", "show", run_id).out
    assert " ".join(output.split()).count("selection 1.2 s, fetching 2.8 s, auditing 5.0 s") == 1
    assert terminal.json("runs", "show", run_id)["phases"] == [
        {"phase": "selection", "seconds": 1.25},
        {"phase": "fetching", "seconds": 2.75},
        {"phase": "auditing", "seconds": 5.0},
        {"phase": "finalizing", "seconds": 0.0},
    ]


def test_the_phase_is_shown_with_the_status_until_the_run_ends(
    terminal: Terminal, run_id: str
) -> None:
    def status_line() -> str:
        return terminal.run("runs", "show", run_id).out.splitlines()[1].split(maxsplit=1)[1].strip()

    with terminal.database.transaction() as session:
        row = session.get_one(RunRow, int(run_id))
        ended_at, row.phase, row.status, row.completed_at = (
            row.completed_at,
            "auditing",
            "running",
            None,
        )
    assert status_line() == "running (auditing)"
    with terminal.database.transaction() as session:
        row = session.get_one(RunRow, int(run_id))
        row.phase, row.status, row.completed_at = "finalizing", "partial", ended_at
    assert status_line() == "partial"
    assert terminal.json("runs", "show", run_id)["phase"] == "finalizing"


def test_run_outcomes_are_listed_in_selection_order(terminal: Terminal, run_id: str) -> None:
    shown = terminal.json("runs", "show", run_id)
    assert (shown["id"], shown["status"], shown["startedAt"]) == (
        run_id,
        "partial",
        "2026-05-04T10:00:00.000Z",
    )
    assert (shown["selectedFiches"], shown["successfulFiches"], shown["ignoredFiches"]) == (3, 1, 1)
    assert [(fiche["ficheId"], fiche["status"], fiche["reason"]) for fiche in shown["fiches"]] == [
        ("1", "successful", None),
        ("2", "failed", "fetch_failed"),
        ("3", "ignored", "not_found"),
        ("4", "pending", None),
    ]
    assert shown["fiches"][0]["recordingsCount"] == 3
    assert shown["fiches"][1]["error"] == "The CRM answered [/503] for fiche 2."
    assert shown["fiches"][2]["ignoreReason"] == "Fiche not found (404)"
    assert shown["reasons"] == {"failed": {"fetch_failed": 1}, "ignored": {"not_found": 1}}
    assert shown["progress"] == {
        "selected": 4, "fetched": 3, "toWork": 1, "transcribed": 1, "audited": 1, "ended": 3, "audits": 1,
    }  # fmt: skip
    assert shown["selectionSummary"] == SUMMARY
    [result] = shown["notifications"]
    assert (result["channel"], result["status"], result["statusCode"], result["sentAt"]) == (
        "webhook",
        "failed",
        503,
        None,
    )


def test_text_output_shows_the_same_outcomes(terminal: Terminal, run_id: str) -> None:
    ended = terminal.run("runs", "show", run_id)
    assert (ended.code, ended.err) == (0, "")
    assert [line.rstrip() for line in ended.out.splitlines()] == [
        "run                           1 of schedule 1, manual",
        "status                        partial",
        "attempt                       0",
        "queued                        2026-05-04 10:00:00 UTC",
        "ended                         2026-05-04 10:00:09 UTC",
        "seconds                       120.0",
        "fiches                        3 selected = 1 successful + 1 failed + 1 ignored",
        "work                          3 fetched, 1 transcribed, 1 audited by 1 audits",
        "selection mode                date_range",
        "selection dates               7: 2026-05-01; 2026-05-02; 2026-05-03; 2026-05-04;",
        "                              2026-05-05; ...",
        "selection dropped             audited 2",
        "selection only unaudited      no",
        "selection filters             groupes NORD; SUD, useRlm yes",
        "errors revalidation failures  date 2026-05-02, error 503 [/x]",
        "failed because                fetch_failed 1",
        "ignored because               not_found 1",
        "notified by  receiver                    delivery  attempts  error",
        "webhook      https://example.org/[hook]  failed    3         It answered 503",
        "fiche  outcome     recordings  reason        why",
        "1      successful  3",
        "2      failed                  fetch_failed  The CRM answered [/503] for fiche",
        "                                             2.",
        "3      ignored                 not_found     Fiche not found (404)",
        "4      pending",
    ]


def test_a_run_before_selection_shows_no_table(terminal: Terminal, pending_id: str) -> None:
    shown = terminal.run("runs", "show", pending_id).out
    assert "0 selected" in shown
    assert "outcome" not in shown
    assert terminal.run("runs", "logs", pending_id).out == ""


def test_a_run_with_an_unbalanced_ledger_prints_a_warning(terminal: Terminal, run_id: str) -> None:
    with terminal.database.transaction() as session:
        session.get_one(RunRow, int(run_id)).selected_fiches = 4
    assert "4 selected, and not 3 = 1 successful" in terminal.run("runs", "show", run_id).out


class AdvancingRun:
    """Advances a run by one step in each pause."""

    def __init__(self, terminal: Terminal, run_id: str, verdict: OutcomeStatus) -> None:
        self._database, self._clock, self._id = terminal.database, SystemClock(), int(run_id)
        self._verdict = verdict
        self.steps: list[Callable[[], object]] = [
            self._open,
            self._select,
            self._fetch,
            self._audit,
            self._end,
        ]

    def _open(self) -> None:
        open_run(make_launch(1, run_id=self._id), database=self._database, clock=self._clock)

    def _select(self) -> None:
        with self._database.transaction() as session:
            row = session.get_one(RunRow, self._id)
            row.phase, row.selected_at, row.selected_fiches = "fetching", STARTED, 3
            open_ledger(session, self._id, ["1", "2", "3"], 3, STARTED)

    def _fetch(self) -> None:
        at_work = [
            LedgerMove(fiche, OutcomeStatus.PENDING, recordings_count=1, stage=FicheStage.FETCHED)
            for fiche in ("1", "2")
        ]
        self._move(*at_work, ignored_move("3", Reason.NOT_FOUND, "Fiche not found (404)"))

    def _audit(self) -> None:
        with self._database.transaction() as session:
            transcribed(session, self._id, "1", "2")
        done = LedgerMove(
            "1", self._verdict, stage=FicheStage.FETCHED, reason=Reason.AUDIT_FAILED, audits=1
        )
        self._move(done, replace(failed_move("2", Reason.AUDIT_FAILED, "No answer"), audits=1))

    def _move(self, *moves: LedgerMove) -> None:
        with self._database.transaction() as session:
            record_moves(session, self._id, moves, STARTED)

    def _end(self) -> None:
        finalise_run(self._id, database=self._database, clock=self._clock)


@pytest.mark.parametrize(
    ("verdict", "status", "code"), [("successful", "partial", 0), ("failed", "failed", 1)]
)
@pytest.mark.parametrize("as_json", [False, True])
def test_watching_a_run_exits_with_its_result(
    terminal: Terminal, pending_id: str, monkeypatch: pytest.MonkeyPatch,
    verdict: str, status: str, code: int, as_json: bool,
) -> None:  # fmt: skip
    advancing = AdvancingRun(terminal, pending_id, OutcomeStatus(verdict))
    during_pauses(monkeypatch, *advancing.steps)
    if as_json:
        shown = terminal.json("runs", "watch", pending_id, code=code)
        assert (shown["run_id"], shown["status"], len(shown["fiches"])) == (pending_id, status, 3)
        return
    ended = terminal.run("runs", "watch", pending_id)
    assert ended.code == code
    output = " ".join(ended.out.split())
    for fact in ("selection ", "3/3", "2/2", status, "2 failed 1 audit_failed No answer"):
        assert fact in output


def test_a_retry_can_be_awaited(
    terminal: Terminal, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    during_pauses(monkeypatch, *AdvancingRun(terminal, "2", OutcomeStatus.SUCCESSFUL).steps)
    shown = terminal.json("runs", "retry", run_id, "--wait")
    assert (shown["run_id"], shown["retryOfRunId"], shown["status"]) == ("2", run_id, "partial")
