"""What becomes of a fiche once its transcripts and audits were asked for, in words and keys that
stay."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.automation.models.runs import FicheStage, OutcomeStatus, Reason
from automation_pipeline.automation.rules.fiches import (
    ConfigAuditResult,
    move_after_audits,
    move_after_transcription,
    work_key,
)
from automation_pipeline_tests.tables import every_case

DONE, SILENT = ConfigAuditResult(1, completed=True), ConfigAuditResult(4, None)
BROKEN, MUTE = (
    ConfigAuditResult(2, completed=False, error="The model refused"),
    ConfigAuditResult(3, completed=False),
)
LOST = ConfigAuditResult(5, None, "The model did not answer")
LATE = ConfigAuditResult(6, completed=False, error="No transcript")


@every_case(
    ("ends", "status", "reason", "error", "audits"),
    [
        ([DONE], "successful", None, None, 1),
        ([DONE, DONE], "successful", None, None, 2),
        ([DONE, BROKEN], "failed", "audit_failed", "The model refused", 2),
        ([BROKEN, LATE], "failed", "audit_failed", "The model refused", 2),
        ([LATE, BROKEN], "failed", "audit_failed", "No transcript", 2),
        ([MUTE, BROKEN], "failed", "audit_failed", "The model refused", 2),
        ([MUTE], "failed", "audit_failed", "Audit failed (1/1 config(s))", 1),
        ([DONE, MUTE, MUTE], "failed", "audit_failed", "Audit failed (2/3 config(s))", 3),
        ([LOST, BROKEN], "failed", "audit_failed", "The model refused", 1),
        (
            [replace(LOST, timed_out=True)],
            "failed",
            "audit_incomplete",
            "Audit incomplete (timeout/stall): The model did not answer",
            0,
        ),
        ([SILENT], "failed", "audit_incomplete", "Audit incomplete (timeout/stall)", 0),
        ([DONE, SILENT], "failed", "audit_incomplete", "Audit incomplete (timeout/stall)", 1),
        (
            [SILENT, LOST],
            "failed",
            "audit_incomplete",
            "Audit incomplete: The model did not answer",
            0,
        ),
    ],
)
def test_the_worst_end_of_an_audit_is_that_of_the_fiche(
    ends: list[ConfigAuditResult], status: str, reason: str | None, error: str | None, audits: int
) -> None:
    move = move_after_audits("7", ends)
    assert (move.fiche_id, move.status, move.reason, move.error) == ("7", status, reason, error)
    assert (move.audits, move.stage) == (audits, FicheStage.FETCHED)


@given(
    st.lists(
        st.builds(
            ConfigAuditResult,
            st.integers(1, 9),
            st.sampled_from([True, False, None]),
            st.none() | st.text(),
        )
    )
)
def test_a_fiche_is_successful_only_when_each_of_its_audits_is(
    ends: list[ConfigAuditResult],
) -> None:
    move = move_after_audits("7", ends)
    assert (move.status is OutcomeStatus.SUCCESSFUL) == all(end.completed for end in ends)
    assert (
        (move.error is None) == (move.reason is None) == (move.status is OutcomeStatus.SUCCESSFUL)
    )
    assert move.audits == sum(end.completed is not None for end in ends)


def test_a_fiche_without_transcripts_fails_with_the_cause_and_names_only_real_timeouts() -> None:
    stable = "Transcription incomplete"
    cases = [
        (None, True, f"{stable} (timeout/stall)"),
        (None, False, f"{stable} (timeout/stall)"),
        ("", True, f"{stable} (timeout/stall)"),
        ("status=429", True, f"{stable} (timeout/stall): status=429"),
        ("No recording URL available", False, f"{stable}: No recording URL available"),
    ]
    moves = [
        move_after_transcription("7", cause, timed_out=timed_out) for cause, timed_out, _ in cases
    ]
    assert [move.error for move in moves] == [error for *_, error in cases]
    assert {(move.status, move.reason) for move in moves} == {
        (OutcomeStatus.FAILED, Reason.TRANSCRIPTION_INCOMPLETE)
    }


def test_keys_are_stable_and_a_retry_has_its_own() -> None:
    assert work_key(3, "transcribe", "1900417") == "automation-3-transcribe-1900417"
    assert work_key(3, "audit", "1900417", 12, attempt=2) == "automation-3-audit-1900417-12-retry-2"
