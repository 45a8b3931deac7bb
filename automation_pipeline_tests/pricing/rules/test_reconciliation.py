"""Any difference is told, weighed by its size; what cannot be read proves nothing."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.history import PriceReading
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


def reading(actual: Price | None, target_id: str = "t1") -> PriceReading:
    return PriceReading(
        target_id=target_id, sku_id="s1", expected=Price(1299, "USD"), actual=actual, reason="404"
    )


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
    assert mismatch_of(reading(Price(1299, "USD", 1599))) is None


def test_another_currency_is_a_mismatch_without_a_difference() -> None:
    found = mismatch_of(reading(Price(1299, "EUR")))
    assert found is not None
    assert (found.difference, found.percentage_diff, found.actual_currency) == (None, None, "EUR")


def test_a_report_tells_mismatches_and_what_could_not_be_read() -> None:
    readings = [reading(Price(1399, "USD")), reading(Price(1299, "USD"), "t2"), reading(None, "t3")]
    assert as_document(reconciliation_report("r1", readings, T0)) == {
        "runId": "r1",
        "totalChecked": 2,
        "mismatches": 1,
        "timestamp": "2026-05-04T02:00:00.000Z",
        "details": [
            {
                "targetId": "t1",
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
        "unverified": [{"targetId": "t3", "reason": "404"}],
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
        "r1", [reading(Price(amount, "USD"), f"t{amount}") for amount in actual], T0
    )
    assert worst_severity(found) == weight


def test_what_is_priced_in_another_currency_is_not_put_back() -> None:
    found = reconciliation_report(
        "r1",
        [reading(Price(1, "USD"), "t1"), reading(Price(1, "EUR"), "t2"), reading(None, "t3")],
        T0,
    )
    assert [one.target_id for one in repairable_mismatches(found)] == ["t1"]
