"""Any difference is told, weighed by its size; what cannot be read proves nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.money import Price
from automation_pipeline.pricing.domain.reconciliation import (
    Applied,
    Reading,
    in_daily_pass,
    latest,
    mismatch,
    next_first_check,
    report,
    severity,
)

T0 = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)


def reading(actual: Price | None, target_id: str = "t1") -> Reading:
    return Reading(target_id=target_id, sku_id="s1", expected=Price(1299, "USD"), actual=actual, reason="404")


@pytest.mark.parametrize(
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
    assert severity(expected, actual) == weight


def test_the_same_price_is_no_mismatch_whatever_is_struck_through() -> None:
    assert mismatch(reading(Price(1299, "USD", 1599))) is None


def test_another_currency_is_a_mismatch_without_a_difference() -> None:
    found = mismatch(reading(Price(1299, "EUR")))
    assert found is not None
    assert (found.difference, found.percentage_diff, found.actual_currency) == (None, None, "EUR")


def test_a_report_tells_mismatches_and_what_could_not_be_read() -> None:
    readings = [reading(Price(1399, "USD")), reading(Price(1299, "USD"), "t2"), reading(None, "t3")]
    assert as_document(report("r1", readings, T0)) == {
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


def test_only_the_latest_applied_of_a_variant_and_currency_is_looked_at() -> None:
    old, new = Applied("t1", "v1", "EUR", T0), Applied("t2", "v1", "EUR", T0 + timedelta(days=1))
    other = Applied("t3", "v1", "USD", T0)
    assert {target.target_id for target in latest([new, old, other])} == {"t2", "t3"}


def test_a_run_is_checked_after_five_minutes_and_an_hour_and_then_daily_for_thirty_days() -> None:
    assert next_first_check(T0, []) == ("5m", T0 + timedelta(minutes=5))
    assert next_first_check(T0, ["5m"]) == ("1h", T0 + timedelta(hours=1))
    assert next_first_check(T0, ["5m", "1h"]) is None
    ages = [timedelta(hours=1), timedelta(hours=2), timedelta(days=30), timedelta(days=30, seconds=1)]
    assert [in_daily_pass(T0, T0 + age) for age in ages] == [False, True, True, False]
