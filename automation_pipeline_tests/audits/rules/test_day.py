"""The checks of a day's audits, and the causes of failures."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.days import (
    AUDIT_CHECKS,
    DayAudits,
    FailingPoint,
    judge_audits,
    without_fiche_id,
)
from automation_pipeline_tests.cases import every_case

EVERY, STEPS, EVIDENCE = AUDIT_CHECKS


NOTHING: dict[str, Any] = {
    "by_niveau": {}, "mean_score": None, "non_compliant": 0, "failures": {}, "steps": 0, "steps_failed": 0,
    "citations": 0, "citations_removed": 0, "failing_points": (),
}  # fmt: skip


def day(**counts: Any) -> DayAudits:
    return DayAudits(**{**NOTHING, "configs": 2, "fiches": 10, "audited": 20, **counts})


def failed(counts: dict[str, int]) -> set[str]:
    return {
        finding.check
        for finding in judge_audits(day(**counts), has_sales_list=True)
        if not finding.passed
    }


@every_case(
    ("counts", "fails"),
    [
        ({}, set()),
        ({"audited": 19}, set()),
        ({"audited": 18}, {EVERY}),
        ({"fiches": 0, "audited": 0}, set()),
        ({"configs": 0, "audited": 0}, {EVERY}),
        ({"steps": 100, "steps_failed": 5}, set()),
        ({"steps": 100, "steps_failed": 6}, {STEPS}),
        ({"citations": 100, "citations_removed": 10}, set()),
        ({"citations": 100, "citations_removed": 11}, {EVIDENCE}),
        (
            {"audited": 0, "steps": 3, "steps_failed": 3, "citations": 1, "citations_removed": 1},
            set(AUDIT_CHECKS),
        ),
    ],
)
def test_the_checks_pass_at_their_thresholds(counts: dict[str, int], fails: set[str]) -> None:
    assert failed(counts) == fails


@given(st.integers(0, 3), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_every_day_has_one_result_per_check(
    configs: int, fiches: int, steps: int, citations: int
) -> None:
    counted = day(configs=configs, fiches=fiches, audited=0, steps=steps, citations=citations)
    for has_sales_list in (True, False):
        assert (
            tuple(finding.check for finding in judge_audits(counted, has_sales_list=has_sales_list))
            == AUDIT_CHECKS
        )


def test_a_day_without_a_sales_list_passes_no_check() -> None:
    findings = judge_audits(day(), has_sales_list=False)
    assert [(finding.passed, finding.grave) for finding in findings] == [(False, True)] * 3


def test_without_an_automatic_configuration_the_check_message_names_the_remedy() -> None:
    [finding, *_] = judge_audits(day(configs=0, audited=0), has_sales_list=True)
    assert "automation audit-configs import" in finding.message


def test_the_check_message_counts_audits_not_fiches() -> None:
    [finding, *_] = judge_audits(day(audited=18), has_sales_list=True)
    assert (
        finding.message
        == "18 of 20 audits are completed: 10 fiches with a transcript by 2 automatic configurations."
    )


@every_case(
    ("error", "expected"),
    [
        ("Fiche 40 not found (404)", "Fiche not found (404)"),
        (
            "No usable transcribed recordings available for fiche 40 (timeline empty)",
            "No usable transcribed recordings available for fiche (timeline empty)",
        ),
        (
            "No step could be judged: LLM call failed status=40",
            "No step could be judged: LLM call failed status=40",
        ),
        ("Fiche 401 is another one", "Fiche 401 is another one"),
    ],
)
def test_failures_of_different_fiches_have_one_cause(error: str, expected: str) -> None:
    assert without_fiche_id(error, "40") == expected


@every_case(("failing", "judged", "share"), [(1, 4, 0.25), (3, 3, 1.0), (0, 0, 0.0)])
def test_the_share_of_a_failing_point_is_of_applicable_audits(
    failing: int, judged: int, share: float
) -> None:
    assert FailingPoint("Welcome", "Name given", failing, judged).share == share
