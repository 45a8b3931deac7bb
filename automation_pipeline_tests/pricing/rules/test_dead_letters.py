"""Dead letters are told by their kind, and tried again where it can help."""

from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.pricing.models.history import DeadLetter, DeadLetterTally
from automation_pipeline.pricing.models.runs import PricingRunState
from automation_pipeline.pricing.models.shop import FailureKind
from automation_pipeline.pricing.rules.monitoring import dead_letter_report, recommendation
from automation_pipeline.pricing.rules.runs import targets_to_retry, worth_retrying
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)


def letter(target_id: str, kind: str, *, retryable: bool = False, hours: int = 0) -> DeadLetter:
    return DeadLetter(
        target_id=target_id,
        run_id="r1",
        product_id="p1",
        variant_id="v1",
        failed_at=NOW - timedelta(hours=hours),
        error_type=FailureKind(kind),
        error="It failed.",
        retryable=retryable,
    )


LETTERS = [
    letter("t1", "rate_limit", retryable=True),
    letter("t2", "not_found", hours=30),
    letter("t3", "not_found", hours=2),
    letter("t4", "not_found", hours=24),
]


def test_a_report_counts_by_kind_and_says_what_to_do() -> None:
    tallies = [
        DeadLetterTally(FailureKind.RATE_LIMIT, 1, 1, 0),
        DeadLetterTally(FailureKind.NOT_FOUND, 3, 0, 1),
    ]
    report = dead_letter_report("p1", tallies, LETTERS[:2])
    assert (report.total_failed, report.retryable, report.stale) == (4, 1, 1)
    assert list(report.by_error_type.items()) == [
        (FailureKind.NOT_FOUND, 3),
        (FailureKind.RATE_LIMIT, 1),
    ]
    assert report.recommendations == (
        "3 variants no longer exist in the shop: re-sync the catalogue",
        "1 variant met the shop's rate limit: retry later, or lower the concurrency",
    )
    assert [entry.target_id for entry in report.entries] == ["t1", "t2"]


def test_without_dead_letters_there_is_nothing_to_do() -> None:
    report = dead_letter_report("p1", [], [])
    assert (report.total_failed, report.by_error_type, report.recommendations) == (0, {}, ())


@every_case("kind", FailureKind)
def test_every_kind_has_its_advice(kind: FailureKind) -> None:
    assert recommendation(kind, 2).startswith("2 variants ")


@every_case(
    ("kind", "retryable", "worth"),
    [
        ("server", True, True),
        ("timeout", False, True),
        ("cancelled", False, True),
        ("not_found", False, False),
    ],
)
def test_what_was_only_interrupted_is_worth_another_attempt(
    kind: str, *, retryable: bool, worth: bool
) -> None:
    assert worth_retrying(FailureKind(kind), retryable=retryable) is worth


FAILED = {1: True, 2: False, 3: False, 4: False}


def test_a_retry_of_all_leaves_the_hopeless_out_unless_forced() -> None:
    assert targets_to_retry(PricingRunState.PARTIAL, FAILED) == [1]
    assert targets_to_retry(PricingRunState.FAILED, FAILED, force=True) == [1, 2, 3, 4]
    assert targets_to_retry(PricingRunState.PARTIAL, FAILED, [2, 2], force=True) == [2]


def test_chosen_targets_that_cannot_be_retried_are_named() -> None:
    with pytest.raises(InvalidInputError) as refused:
        targets_to_retry(PricingRunState.PARTIAL, FAILED, [1, 2, 9])
    assert [problem for _, problem in refused.value.fields] == [
        "9 is not a failed target of the run",
        "2 would fail again: fix its cause, then use force",
    ]


def test_without_anything_worth_it_a_retry_is_refused() -> None:
    with pytest.raises(ConflictError, match="No failed target of the run is worth another attempt"):
        targets_to_retry(PricingRunState.FAILED, {2: False})


@every_case(
    "state", sorted(set(PricingRunState) - {PricingRunState.PARTIAL, PricingRunState.FAILED})
)
def test_only_a_run_that_failed_in_part_or_whole_is_retried(state: PricingRunState) -> None:
    with pytest.raises(ConflictError, match=f"A run that is {state} cannot be retried"):
        targets_to_retry(state, FAILED)
