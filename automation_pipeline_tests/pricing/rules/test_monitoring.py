"""Rules for dead letters, checks, alerts, invariants and daily reports."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.runs import PricingRunState, RuleRun, TargetCounts
from automation_pipeline.pricing.models.shop import FailureKind, Price
from automation_pipeline.pricing.rules.monitoring import (
    DAY_CHECKS,
    DayRuns,
    DeadLetter,
    DeadLetterTally,
    LiveTarget,
    OpenedCircuit,
    ProjectHealth,
    broken_invariants,
    dead_letter_report,
    evaluate_alerts,
    evaluate_day,
    in_daily_pass,
    mismatch_of,
    mismatch_severity,
    recommendation,
    reconciliation_report,
    repairable_mismatches,
    worst_severity,
)
from automation_pipeline.pricing.rules.runs import targets_to_retry, worth_retrying
from automation_pipeline_tests.cases import every_case

NOW = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)


def dead_letter(
    target_id: str, kind: str, *, retryable: bool = False, hours: int = 0
) -> DeadLetter:
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


DEAD_LETTERS = [
    dead_letter("t1", "rate_limit", retryable=True),
    dead_letter("t2", "not_found", hours=30),
    dead_letter("t3", "not_found", hours=2),
    dead_letter("t4", "not_found", hours=24),
]


def test_a_report_counts_by_kind_and_recommends_actions() -> None:
    tallies = [
        DeadLetterTally(FailureKind.RATE_LIMIT, 1, 1, 0),
        DeadLetterTally(FailureKind.NOT_FOUND, 3, 0, 1),
    ]
    report = dead_letter_report("p1", tallies, DEAD_LETTERS[:2])
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


def test_a_report_without_dead_letters_has_no_recommendations() -> None:
    report = dead_letter_report("p1", [], [])
    assert (report.total_failed, report.by_error_type, report.recommendations) == (0, {}, ())


def test_error_kinds_with_equal_counts_are_ordered_by_name() -> None:
    tallies = [
        DeadLetterTally(FailureKind(kind), count, 0, 0)
        for kind, count in (("server", 2), ("network", 2), ("unknown", 1), ("conflict", 2))
    ]
    report = dead_letter_report("p1", tallies, [])
    assert list(report.by_error_type) == ["conflict", "network", "server", "unknown"]


@every_case("kind", FailureKind)
def test_every_error_kind_has_a_recommendation(kind: FailureKind) -> None:
    assert recommendation(kind, 2).startswith("2 variants ")


@every_case(
    ("kind", "retryable", "should_retry"),
    [
        ("server", True, True),
        ("timeout", False, True),
        ("cancelled", False, True),
        ("not_found", False, False),
    ],
)
def test_interrupted_targets_are_retryable(
    kind: str, *, retryable: bool, should_retry: bool
) -> None:
    assert worth_retrying(FailureKind(kind), retryable=retryable) is should_retry


FAILED = {1: True, 2: False, 3: False, 4: False}


def test_a_retry_of_all_targets_skips_permanent_failures_unless_forced() -> None:
    assert targets_to_retry(PricingRunState.PARTIAL, FAILED) == [1]
    assert targets_to_retry(PricingRunState.FAILED, FAILED, force=True) == [1, 2, 3, 4]
    assert targets_to_retry(PricingRunState.PARTIAL, FAILED, [2, 2], force=True) == [2]


def test_the_error_names_chosen_targets_that_are_not_retryable() -> None:
    with pytest.raises(InvalidInputError) as refused:
        targets_to_retry(PricingRunState.PARTIAL, FAILED, [1, 2, 9])
    assert [problem for _, problem in refused.value.fields] == [
        "9 is not a failed target of the run",
        "2 would fail again: fix its cause, then use force",
    ]


def test_a_retry_without_retryable_targets_is_refused() -> None:
    with pytest.raises(ConflictError, match="No failed target of the run is retryable"):
        targets_to_retry(PricingRunState.FAILED, {2: False})


@every_case(
    "state", sorted(set(PricingRunState) - {PricingRunState.PARTIAL, PricingRunState.FAILED})
)
def test_only_partial_and_failed_runs_can_be_retried(state: PricingRunState) -> None:
    with pytest.raises(ConflictError, match=f"A run that is {state} cannot be retried"):
        targets_to_retry(state, FAILED)


T0 = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)


def target(id_: int = 1) -> LiveTarget:
    return LiveTarget(id_, 7, f"v{id_}", "s1", Price(1299, "USD"))


@every_case(
    ("expected", "actual", "weight"),
    [
        (Price(1299, "USD"), Price(1300, "USD"), "info"),
        (Price(10, "USD"), Price(9, "USD"), "info"),
        (Price(1000, "USD"), Price(1002, "USD"), "warning"),
        (Price(1000, "USD"), Price(990, "USD"), "warning"),
        (Price(1000, "USD"), Price(989, "USD"), "critical"),
        (Price(0, "USD"), Price(2, "USD"), "critical"),
        (Price(1299, "USD"), Price(1299, "EUR"), "critical"),
    ],
)
def test_the_severity_of_a_price_difference(expected: Price, actual: Price, weight: str) -> None:
    assert mismatch_severity(expected, actual) == weight


def test_a_different_compare_at_price_is_not_a_mismatch() -> None:
    assert mismatch_of(target(), Price(1299, "USD", 1599)) is None


def test_another_currency_is_a_mismatch_without_an_amount() -> None:
    found = mismatch_of(target(), Price(1299, "EUR"))
    assert found is not None
    assert (found.difference, found.percentage_diff, found.actual_currency) == (None, None, "EUR")
    free = mismatch_of(replace(target(), expected=Price(0, "USD")), Price(5, "USD"))
    assert free is not None
    assert (free.difference, free.percentage_diff) == (5, None)


def test_a_report_lists_mismatches_and_unverified_prices() -> None:
    found = [(target(1), Price(1399, "USD")), (target(2), Price(1299, "USD")), (target(3), "404")]
    assert as_document(reconciliation_report(7, found, T0)) == {
        "runId": "7",
        "totalChecked": 2,
        "mismatches": 1,
        "timestamp": "2026-05-04T02:00:00.000Z",
        "details": [
            {
                "targetId": "1",
                "skuId": "s1",
                "expectedPrice": 1299,
                "actualPrice": 1399,
                "currency": "USD",
                "actualCurrency": "USD",
                "difference": 100,
                "percentageDiff": 0.077,
                "severity": "critical",
            }
        ],
        "unverified": [{"targetId": "3", "reason": "404"}],
    }


def test_runs_between_one_hour_and_thirty_days_old_are_reconciled_daily() -> None:
    ages = [
        timedelta(hours=1),
        timedelta(hours=2),
        timedelta(days=30),
        timedelta(days=30, seconds=1),
    ]
    assert [in_daily_pass(T0, T0 + age) for age in ages] == [False, True, True, False]


@every_case(
    ("actual", "weight"),
    [([1299], None), ([1300], "info"), ([1300, 1305], "warning"), ([1305, 1, 1300], "critical")],
)
def test_the_severity_of_a_report_is_its_highest(actual: list[int], weight: str | None) -> None:
    found = reconciliation_report(
        7, [(target(amount), Price(amount, "USD")) for amount in actual], T0
    )
    assert worst_severity(found) == weight


def test_a_price_in_another_currency_is_not_repaired() -> None:
    found = reconciliation_report(
        7, [(target(1), Price(1, "USD")), (target(2), Price(1, "EUR")), (target(3), "404")], T0
    )
    assert [one.target_id for one in repairable_mismatches(found)] == ["1"]


OPENED_AT = datetime(2026, 5, 4, 9, 58, 30, tzinfo=UTC)


def success(applied: int, failed: int) -> ProjectHealth:
    return ProjectHealth(applied=applied, failed=failed)


@every_case(
    ("health", "fired"),
    [
        (success(97, 3), []),
        (success(96, 4), ["success_rate warning"]),
        (success(90, 10), ["success_rate warning"]),
        (success(89, 11), ["success_rate critical"]),
        (success(9, 10), []),
        (success(10, 10), ["success_rate critical"]),
        (success(0, 0), []),
        (ProjectHealth(dead_letters=50), []),
        (ProjectHealth(dead_letters=51), ["dlq_size warning"]),
        (ProjectHealth(dead_letters=100), ["dlq_size warning"]),
        (ProjectHealth(dead_letters=101), ["dlq_size critical"]),
        (ProjectHealth(rate_limits=3), []),
        (ProjectHealth(rate_limits=4), ["rate_limits warning"]),
        (
            ProjectHealth(applied=0, failed=500, dead_letters=500, rate_limits=9),
            ["success_rate critical", "dlq_size critical", "rate_limits warning"],
        ),
        (ProjectHealth(circuit=OpenedCircuit("shop.test")), ["circuit_open critical"]),
        (ProjectHealth(circuit=OpenedCircuit("shop.test", OPENED_AT)), ["circuit_open critical"]),
    ],
)
def test_alert_conditions_per_health_figure(health: ProjectHealth, fired: list[str]) -> None:
    found = evaluate_alerts("shoes", health)
    assert [f"{alert.name} {alert.severity}" for alert in found] == fired
    assert all(alert.message.endswith(".") and alert.subject == "shoes" for alert in found)


def test_the_message_of_an_alert_contains_its_figures() -> None:
    health = ProjectHealth(
        applied=89,
        failed=11,
        dead_letters=51,
        rate_limits=4,
        circuit=OpenedCircuit("shop.test"),
    )
    assert [alert.message for alert in evaluate_alerts("shoes", health)] == [
        "Only 89.0% of 100 price changes succeeded.",
        "51 failed price changes wait for an operator.",
        "The shop refused 4 calls in five minutes for coming too fast.",
        "The circuit of shop.test is open: price changes wait, because calls were refused or failed in a row.",
    ]
    closed = ProjectHealth(circuit=OpenedCircuit("shop.test", OPENED_AT))
    [alert] = evaluate_alerts("shoes", closed)
    assert (alert.happened_at, alert.message) == (
        OPENED_AT,
        (
            "The circuit of shop.test opened at 09:58:30 UTC and has closed again: price changes waited, because calls "
            "were refused or failed in a row."
        ),
    )


def faults(status: str, states: str) -> list[str]:
    counts = TargetCounts(**Counter(states.lower().split()))
    return broken_invariants(1, PricingRunState(status), counts)


@every_case(
    ("status", "states"),
    [
        ("PREVIEW", "PREVIEW"),
        ("APPLYING", "APPLIED QUEUED APPLYING FAILED"),
        ("APPLIED", ""),
        ("APPLIED", "APPLIED APPLIED PREVIEW"),
        ("APPLIED", "APPLIED ROLLED_BACK"),
        ("PARTIAL", "APPLIED FAILED"),
        ("PARTIAL", "APPLIED FAILED ROLLED_BACK"),
        ("PARTIAL", "FAILED ROLLED_BACK"),
        ("FAILED", "FAILED FAILED"),
        ("ROLLED_BACK", "ROLLED_BACK FAILED"),
    ],
)
def test_a_consistent_run_breaks_no_invariant(status: str, states: str) -> None:
    assert faults(status, states) == []


@every_case(
    ("status", "states", "fault"),
    [
        ("APPLIED", "APPLIED FAILED", "Run 1 is APPLIED and has 1 failed targets."),
        ("APPLIED", "QUEUED", "Run 1 is APPLIED and has 1 unfinished targets."),
        ("APPLIED", "QUEUED APPLYING", "Run 1 is APPLIED and has 2 unfinished targets."),
        ("PARTIAL", "APPLIED", "Run 1 is PARTIAL and lacks applied or failed targets."),
        ("PARTIAL", "FAILED", "Run 1 is PARTIAL and lacks applied or failed targets."),
        ("FAILED", "FAILED APPLIED", "Run 1 is FAILED and has 1 applied targets."),
        ("ROLLED_BACK", "APPLIED", "Run 1 is ROLLED_BACK and has 1 applied targets left."),
    ],
)
def test_a_run_inconsistent_with_its_targets_breaks_an_invariant(
    status: str, states: str, fault: str
) -> None:
    assert faults(status, states) == [fault]


def make_day(
    *runs: tuple[int, int], dead: int = 0, mismatched: int = 0, broken: tuple[str, ...] = ()
) -> DayRuns:
    """A day with one run per pair of applied and failed counts."""
    created = [
        RuleRun.model_construct(targets=TargetCounts(applied=applied, failed=failed))
        for applied, failed in runs
    ]
    return DayRuns(created, dead, range(1, mismatched + 1), broken)


@every_case(
    ("day", "failed"),
    [
        (make_day(), []),
        (make_day((97, 3)), []),
        (make_day((9699, 301)), ["success_rate"]),
        (make_day((50, 0), (46, 4)), ["success_rate"]),
        (make_day((10, 9)), []),
        (make_day((10, 10)), ["success_rate"]),
        (make_day((0, 19)), []),
        (make_day((1, 0), dead=50), []),
        (make_day((1, 0), dead=51), ["dead_letters"]),
        (make_day((1, 0), mismatched=1), ["no_mismatch"]),
        (make_day((1, 0), broken=("Run 1 is APPLIED and has 2 failed targets.",)), ["invariants"]),
    ],
)
def test_the_daily_checks_pass_or_fail_by_figure(day: DayRuns, failed: list[str]) -> None:
    found = evaluate_day(day)
    assert tuple(finding.check for finding in found) == DAY_CHECKS
    assert [finding.grave for finding in found] == [False, False, True, True]
    assert [finding.check for finding in found if not finding.passed] == failed


def test_check_messages_have_counts_and_the_first_few_runs() -> None:
    day = make_day(
        *[(2, 1)] * 8, dead=3, mismatched=8, broken=("Run 1 was queued late.", "Run 2 too.")
    )
    named = "run 1, run 2, run 3, run 4, run 5, and 3 more."
    assert [finding.message for finding in evaluate_day(day)] == [
        "16 of 24 price changes succeeded.",
        "3 failed price changes wait for an operator.",
        f"Prices in the shop are critically different from what was applied: {named}",
        "Run 1 was queued late, Run 2 too",
    ]
    assert evaluate_day(make_day((1, 0), mismatched=5))[2].message.endswith(
        ": run 1, run 2, run 3, run 4, run 5."
    )
    assert evaluate_day(make_day((1, 0), mismatched=6))[2].message.endswith("run 5, and 1 more.")
    assert [finding.message for finding in evaluate_day(make_day())] == [
        "No price change was tried.",
        "0 failed price changes wait for an operator.",
        "No check of the runs found a price that is critically different.",
        "Every run keeps its invariants.",
    ]
