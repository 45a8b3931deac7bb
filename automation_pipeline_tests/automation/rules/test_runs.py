"""Tests of run rules: status, phases, and the completeness of daily reports."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.automation.models.runs import (
    RUN_MACHINE,
    LedgerTally,
    Phase,
    PhaseEntry,
    RunStatus,
    phase_lengths,
    run_status,
)
from automation_pipeline.automation.queries.reports import (
    ReportedPhase,
    evaluate_report,
    phase_spans,
)
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline_tests.cases import every_case

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
def test_only_transitions_in_the_table_are_allowed(frm: RunStatus, to: RunStatus) -> None:
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
def test_a_ledger_is_balanced_only_if_every_selected_fiche_has_one_outcome(
    selected: int, pending: int, successful: int, failed: int, ignored: int
) -> None:
    status = LedgerTally(selected, pending, successful, failed, ignored)
    assert status.is_whole == (pending == 0 and selected == successful + failed + ignored)
    assert status.total == successful + failed


START = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@every_case(
    ("entered", "until", "lengths"),
    [
        ([], 5, []),
        ([("selection", 0)], 5, [("selection", 5)]),
        (
            [("selection", 0), ("fetching", 2), ("finalizing", 7)],
            7,
            [("selection", 2), ("fetching", 5), ("finalizing", 0)],
        ),
        (
            [("auditing", 4), ("selection", 0), ("fetching", 1)],
            9,
            [("selection", 1), ("fetching", 3), ("auditing", 5)],
        ),
        (
            [("finalizing", 3), ("auditing", 3), ("selection", 0)],
            3,
            [("selection", 3), ("auditing", 0), ("finalizing", 0)],
        ),
        ([("selection", 5)], 0, [("selection", 0)]),
    ],
)
def test_a_phase_lasts_until_the_next_phase_starts(
    entered: list[tuple[str, float]], until: float, lengths: list[tuple[str, float]]
) -> None:
    entries = [PhaseEntry(Phase(phase), at(seconds)) for phase, seconds in entered]
    assert [(each.phase, each.seconds) for each in phase_lengths(entries, at(until))] == lengths


@given(
    st.dictionaries(st.sampled_from(Phase), st.integers(0, 1000), min_size=1), st.integers(0, 1000)
)
def test_phase_durations_add_up_to_the_run_duration(entered: dict[Phase, int], more: int) -> None:
    until = max(entered.values()) + more
    lengths = phase_lengths(
        [PhaseEntry(phase, at(seconds)) for phase, seconds in entered.items()], at(until)
    )
    assert sum(each.seconds for each in lengths) == until - min(entered.values())
    assert {each.phase for each in lengths} == set(entered)


AT = [datetime(2026, 2, 4, 3, 0, tzinfo=UTC) + timedelta(seconds=n) for n in range(4)]
SELECTION, FETCHING = (
    ReportedPhase("selection", AT[0], AT[1]),
    ReportedPhase("fetching", AT[1], AT[2]),
)


@every_case(
    ("marks", "spans"),
    [
        ((None, None, None), (ReportedPhase("selection", AT[0], None),)),
        ((None, None, AT[3]), (ReportedPhase("selection", AT[0], None),)),
        ((AT[1], None, None), (SELECTION, ReportedPhase("fetching", AT[1], None))),
        (
            (AT[1], AT[2], None),
            (SELECTION, FETCHING, ReportedPhase("transcribing and auditing", AT[2], None)),
        ),
        (
            (AT[1], AT[2], AT[3]),
            (SELECTION, FETCHING, ReportedPhase("transcribing and auditing", AT[2], AT[3])),
        ),
    ],
)
def test_a_phase_starts_when_the_previous_phase_ends(
    marks: tuple[datetime | None, datetime | None, datetime | None],
    spans: tuple[ReportedPhase, ...],
) -> None:
    assert phase_spans(AT[0], *marks) == spans


@every_case(
    ("rows", "audits", "has_sales_list", "passed", "message"),
    [
        (3, 3, True, True, "3 rows in the file, 3 audits of the day."),
        (0, 0, True, True, "0 rows in the file, 0 audits of the day."),
        (2, 3, True, False, "2 rows in the file, 3 audits of the day."),
        (None, 0, True, False, "The day has no report."),
        (3, 3, False, False, "The day was never fetched."),
    ],
)
def test_a_report_is_complete_only_if_it_has_every_audit(
    *, rows: int | None, audits: int, has_sales_list: bool, passed: bool, message: str
) -> None:
    finding = evaluate_report(rows, audits, has_sales_list=has_sales_list)
    assert (finding.passed, finding.message) == (passed, message)
