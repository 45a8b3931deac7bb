"""States of a run, and the law of conservation."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.automation.models.runs import (
    RUN_MACHINE,
    LedgerTally,
    RunStatus,
    run_status,
)
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline_tests.tables import every_case

LEGAL = {
    ("pending", "running"),
    ("pending", "failed"),
    ("pending", "cancelled"),
    ("running", "completed"),
    ("running", "partial"),
    ("running", "failed"),
    ("running", "cancelled"),
}


@every_case(("frm", "to"), list(itertools.product(RunStatus, RunStatus)))
def test_a_run_moves_as_the_table_says_and_no_other_way(frm: RunStatus, to: RunStatus) -> None:
    if (frm, to) in LEGAL:
        assert RUN_MACHINE.move(frm, to) is to
    else:
        with pytest.raises(IllegalMoveError):
            RUN_MACHINE.move(frm, to)


@every_case(
    ("successful", "failed", "status"),
    [(0, 0, "completed"), (3, 0, "completed"), (3, 1, "partial"), (0, 1, "failed")],
)
def test_the_status_follows_from_the_counts(successful: int, failed: int, status: str) -> None:
    assert (
        run_status(LedgerTally(selected=successful + failed, successful=successful, failed=failed))
        == status
    )


COUNT = st.integers(min_value=0, max_value=50)


@given(COUNT, COUNT, COUNT, COUNT, COUNT)
def test_a_ledger_is_whole_only_when_every_selected_fiche_has_ended_once(
    selected: int, pending: int, successful: int, failed: int, ignored: int
) -> None:
    status = LedgerTally(selected, pending, successful, failed, ignored)
    assert status.is_whole == (pending == 0 and selected == successful + failed + ignored)
    assert status.total == successful + failed
