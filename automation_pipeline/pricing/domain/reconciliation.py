"""Whether the shop still has the prices that were applied: when it is looked up, and what a difference weighs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from automation_pipeline.core.json_model import Instant, JsonModel
from automation_pipeline.pricing.domain.money import Price

# The first check is done within five minutes, so it is due two minutes earlier: a sensor files it and a run does it.
FIRST_CHECKS = (("5m", timedelta(minutes=3)), ("1h", timedelta(hours=1)))
WATCHED_FOR = timedelta(days=30)

_LEAST = 1
_CRITICAL_SHARE = Decimal("0.01")


class MismatchSeverity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Mismatch(JsonModel):
    """Prices in minor units of the expected currency; `difference` is actual less expected, if they can be compared."""

    target_id: str
    sku_id: str | None
    expected_price: int
    actual_price: int
    currency: str
    actual_currency: str
    difference: int | None
    percentage_diff: float | None
    severity: MismatchSeverity


class Unverified(JsonModel):
    target_id: str
    reason: str


class ReconciliationReport(JsonModel):
    """`total_checked` counts the prices that could be read; `unverified` those that could not, which proves nothing."""

    run_id: str
    total_checked: int
    mismatches: int
    timestamp: Instant
    details: tuple[Mismatch, ...]
    unverified: tuple[Unverified, ...]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """An applied target and its price in the shop; or why that could not be read."""

    target_id: str
    sku_id: str | None
    expected: Price
    actual: Price | None
    reason: str = "the shop did not tell its price"


def report(run_id: str, readings: Sequence[Reading], now: datetime) -> ReconciliationReport:
    details = [found for reading in readings if (found := mismatch(reading)) is not None]
    unread = [Unverified(target_id=one.target_id, reason=one.reason) for one in readings if one.actual is None]
    return ReconciliationReport(
        run_id=run_id,
        total_checked=len(readings) - len(unread),
        mismatches=len(details),
        timestamp=now,
        details=tuple(details),
        unverified=tuple(unread),
    )


def mismatch(reading: Reading) -> Mismatch | None:
    """Any difference in price or currency is one, however small."""
    expected, actual = reading.expected, reading.actual
    if actual is None or expected.stands_as(actual, with_compare_at=False):
        return None
    comparable = expected.currency == actual.currency
    difference = actual.unit_amount - expected.unit_amount if comparable else None
    share = _share(difference, expected.unit_amount)
    return Mismatch(
        target_id=reading.target_id,
        sku_id=reading.sku_id,
        expected_price=expected.unit_amount,
        actual_price=actual.unit_amount,
        currency=expected.currency,
        actual_currency=actual.currency,
        difference=difference,
        percentage_diff=None if share is None else round(float(share), 4),
        severity=severity(expected, actual),
    )


def severity(expected: Price, actual: Price) -> MismatchSeverity:
    """One minor unit is told and no more: a shop may round. Another currency is always critical."""
    if expected.currency != actual.currency:
        return MismatchSeverity.CRITICAL
    difference = abs(actual.unit_amount - expected.unit_amount)
    if difference <= _LEAST:
        return MismatchSeverity.INFO
    return (
        MismatchSeverity.CRITICAL if difference > expected.unit_amount * _CRITICAL_SHARE else MismatchSeverity.WARNING
    )


def worst(found: ReconciliationReport) -> MismatchSeverity | None:
    """The gravest of its differences."""
    severities = {one.severity for one in found.details}
    return next((severity for severity in reversed(MismatchSeverity) if severity in severities), None)


def repairable(found: ReconciliationReport) -> tuple[Mismatch, ...]:
    """A price in another currency is for people to look at."""
    return tuple(one for one in found.details if one.difference is not None)


def in_daily_pass(finished_at: datetime, now: datetime) -> bool:
    """From the last of the early checks until the thirtieth day."""
    return FIRST_CHECKS[-1][1] < now - finished_at <= WATCHED_FOR


def _share(difference: int | None, expected: int) -> Decimal | None:
    return None if difference is None or expected == 0 else Decimal(difference) / expected
