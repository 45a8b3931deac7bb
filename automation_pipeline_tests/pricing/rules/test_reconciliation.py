"""Any difference is told, weighed by its size; what cannot be read proves nothing."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.history import LiveTarget
from automation_pipeline.pricing.models.shop import Price
from automation_pipeline.pricing.rules.monitoring import (
    in_daily_pass,
    mismatch_of,
    mismatch_severity,
    reconciliation_report,
    repairable_mismatches,
    worst_severity,
)
from automation_pipeline_tests.tables import every_case

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
def test_a_difference_has_its_weight(expected: Price, actual: Price, weight: str) -> None:
    assert mismatch_severity(expected, actual) == weight


def test_the_same_price_is_no_mismatch_whatever_is_struck_through() -> None:
    assert mismatch_of(target(), Price(1299, "USD", 1599)) is None


def test_another_currency_is_a_mismatch_without_a_difference() -> None:
    found = mismatch_of(target(), Price(1299, "EUR"))
    assert found is not None
    assert (found.difference, found.percentage_diff, found.actual_currency) == (None, None, "EUR")


def test_a_report_tells_mismatches_and_what_could_not_be_read() -> None:
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


def test_a_run_is_in_the_daily_pass_from_its_first_hour_to_its_thirtieth_day() -> None:
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
def test_a_report_is_as_grave_as_its_gravest_difference(
    actual: list[int], weight: str | None
) -> None:
    found = reconciliation_report(
        7, [(target(amount), Price(amount, "USD")) for amount in actual], T0
    )
    assert worst_severity(found) == weight


def test_what_is_priced_in_another_currency_is_not_put_back() -> None:
    found = reconciliation_report(
        7, [(target(1), Price(1, "USD")), (target(2), Price(1, "EUR")), (target(3), "404")], T0
    )
    assert [one.target_id for one in repairable_mismatches(found)] == ["1"]
