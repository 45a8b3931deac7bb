"""Every move of the reference is legal, every other one is refused."""

from itertools import product

import pytest

from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.pricing.models.runs import (
    FIRST_RUN_STATE,
    FIRST_TARGET_STATE,
    RULE_RUN,
    RULE_TARGET,
    PricingRunState,
    RunError,
    TargetState,
    final_run_state,
    run_error,
)
from automation_pipeline_tests.tables import every_case

LEGAL_RUN_MOVES = {
    ("PREVIEW", "QUEUED"),
    ("QUEUED", "APPLYING"),
    ("APPLYING", "APPLIED"),
    ("APPLYING", "PARTIAL"),
    ("APPLYING", "FAILED"),
    ("PARTIAL", "APPLYING"),
    ("FAILED", "APPLYING"),
    ("APPLIED", "ROLLED_BACK"),
    ("PARTIAL", "ROLLED_BACK"),
}
LEGAL_TARGET_MOVES = {
    ("PREVIEW", "QUEUED"),
    ("QUEUED", "APPLYING"),
    ("APPLYING", "APPLIED"),
    ("APPLYING", "QUEUED"),
    ("APPLYING", "FAILED"),
    ("FAILED", "QUEUED"),
    ("APPLIED", "ROLLED_BACK"),
}


@every_case(("frm", "to"), list(product(PricingRunState, PricingRunState)))
def test_a_run_moves_only_as_it_may(frm: PricingRunState, to: PricingRunState) -> None:
    if (frm, to) in LEGAL_RUN_MOVES:
        assert RULE_RUN.move(frm, to) is to
        return
    with pytest.raises(IllegalMoveError, match=f"A rule run cannot move from {frm} to {to}"):
        RULE_RUN.move(frm, to)


@every_case(("frm", "to"), list(product(TargetState, TargetState)))
def test_a_target_moves_only_as_it_may(frm: TargetState, to: TargetState) -> None:
    if (frm, to) in LEGAL_TARGET_MOVES:
        assert RULE_TARGET.move(frm, to) is to
        return
    with pytest.raises(IllegalMoveError, match=f"A rule target cannot move from {frm} to {to}"):
        RULE_TARGET.move(frm, to)


def test_both_begin_as_a_preview_and_end_for_good_when_rolled_back() -> None:
    assert (FIRST_RUN_STATE, FIRST_TARGET_STATE) == (PricingRunState.PREVIEW, TargetState.PREVIEW)
    assert RULE_RUN.terminal == {PricingRunState.ROLLED_BACK}
    assert RULE_TARGET.terminal == {TargetState.ROLLED_BACK}


@every_case(
    ("targets", "ends_as"),
    [
        ("", "APPLIED"),
        ("PREVIEW", "APPLIED"),
        ("APPLIED APPLIED", "APPLIED"),
        ("APPLIED FAILED", "PARTIAL"),
        ("FAILED FAILED", "FAILED"),
        ("APPLIED ROLLED_BACK", "APPLIED"),
        ("APPLIED FAILED QUEUED", None),
        ("APPLYING", None),
    ],
)
def test_a_run_ends_as_its_targets_did(targets: str, ends_as: str | None) -> None:
    assert final_run_state(TargetState(state) for state in targets.split()) == ends_as


def test_a_failed_run_says_why() -> None:
    assert run_error(PricingRunState.FAILED, was_critical=True) is RunError.CRITICAL
    assert run_error(PricingRunState.FAILED, was_critical=False) is RunError.ALL_TARGETS_FAILED
    assert run_error(PricingRunState.PARTIAL, was_critical=True) is None
