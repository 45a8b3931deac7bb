"""Price changes, dead letters, checks of applied prices, alerts, and the runs of a day: values and decisions."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from automation_pipeline.core.alerts import AlertCondition, AlertSeverity, AlertStatus
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.pricing.models.runs import (
    ENDED_RUN_STATES,
    FIRST_CHECKS,
    PricingRunState,
    RuleRun,
    TargetCounts,
    success_rate,
)
from automation_pipeline.pricing.models.shop import FailureKind, Price


@dataclass(frozen=True)
class RetriedRuns:
    runs: tuple[int, ...]
    skipped: Mapping[int, str]


class PriceChange(JsonModel):
    """Amounts are in minor units. `was_found`: the shop already had the price, from a call whose
    answer was lost."""

    id: Id
    project_id: str
    shop: str
    kind: Literal["apply", "rollback"]
    source: str
    rule_run_id: Id
    target_id: Id
    product_id: str
    variant_id: str
    sku_id: str | None
    currency: str
    from_amount: int
    to_amount: int
    compare_at_old: int | None
    compare_at_new: int | None
    was_found: bool
    applied_at: Instant


@dataclass(frozen=True, kw_only=True)
class PriceChangeFilter:
    project_id: str | None = None
    variant_id: str | None = None
    run_id: int | None = None


class DeadLetter(JsonModel):
    target_id: str
    run_id: str
    product_id: str
    variant_id: str | None
    failed_at: Instant
    error_type: FailureKind
    error: str
    retryable: bool


@dataclass(frozen=True)
class DeadLetterTally:
    """How many dead letters of one kind exist, and how many of them are retryable or stale."""

    kind: FailureKind
    count: int
    retryable: int
    stale: int


class DeadLetterReport(JsonModel):
    """`by_error_type` is ordered by count. The entries are the oldest dead letters."""

    project_id: str
    total_failed: int
    retryable: int
    stale: int
    by_error_type: dict[FailureKind, int]
    recommendations: tuple[str, ...]
    entries: tuple[DeadLetter, ...]


class MismatchSeverity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Mismatch(JsonModel):
    """Prices are in minor units. `difference` is the actual minus the expected price, if the
    currencies are equal."""

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
    """`total_checked` counts the prices that could be read; `unverified` lists the others."""

    run_id: str
    total_checked: int
    mismatches: int
    timestamp: Instant
    details: tuple[Mismatch, ...]
    unverified: tuple[Unverified, ...]


@dataclass(frozen=True)
class LiveTarget:
    id: int
    run_id: int
    variant_id: str
    sku_id: str | None
    expected: Price


MANUAL_PREFIX = "manual-"

_FIRST_NAMES = tuple(name for name, _ in FIRST_CHECKS)
_OTHER_NAMES = re.compile(rf"\d{{4}}-\d{{2}}-\d{{2}}|{MANUAL_PREFIX}[1-9]\d*", re.ASCII)


class RuleCheck(JsonModel):
    """A check without `checked_at` is due. `worst` is the highest severity that was found."""

    rule_run_id: Id
    name: str
    due_at: Instant
    requested_at: Instant | None
    checked_at: Instant | None
    total_checked: int | None
    mismatches: int | None
    unverified: int | None
    worst: MismatchSeverity | None
    report: ReconciliationReport | None


def validate_check_name(name: str) -> None:
    if name not in _FIRST_NAMES and not _OTHER_NAMES.fullmatch(name):
        problem = f"must be {', '.join(_FIRST_NAMES)}, a day such as 2026-05-04, or {MANUAL_PREFIX}1 and so on"
        raise InvalidInputError("There is no such check.", (("check", problem),))


class PricingAlertName(StrEnum):
    SUCCESS_RATE = "success_rate"
    DEAD_LETTERS = "dlq_size"
    RATE_LIMITS = "rate_limits"
    CIRCUIT_OPEN = "circuit_open"


@dataclass(frozen=True)
class OpenedCircuit:
    """`opened_at` is set if the circuit has closed again. A circuit can open and close
    between two evaluations of the alerts."""

    shop: str
    opened_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ProjectHealth:
    """The figures of one project: targets applied and failed in the last hour, unacknowledged dead
    letters, rate-limit refusals of the last five minutes, and a shop whose circuit is open or opened
    in the last five minutes."""

    applied: int = 0
    failed: int = 0
    dead_letters: int = 0
    rate_limits: int = 0
    circuit: OpenedCircuit | None = None


class PricingAlert(JsonModel):
    id: Id
    project_id: str
    name: PricingAlertName
    severity: AlertSeverity
    message: str
    raised_at: Instant
    status: AlertStatus
    attempts: int
    status_code: int | None
    last_error: str | None
    sent_at: Instant | None


@dataclass(frozen=True)
class DayRuns:
    """The runs that ended on a day. `mismatched` are runs whose last check found a critically
    different price in the shop; `broken` has a sentence for each violated invariant."""

    runs: Sequence[RuleRun]
    dead_letters: int = 0
    mismatched: Sequence[int] = ()
    broken: Sequence[str] = ()

    @property
    def applied(self) -> int:
        return sum(run.targets.succeeded for run in self.runs)

    @property
    def failed(self) -> int:
        return sum(run.targets.not_cancelled for run in self.runs)

    @property
    def success_rate(self) -> Decimal | None:
        return success_rate(self.applied, self.failed)


KEPT_FOR = timedelta(days=90)
STALE_AFTER = timedelta(hours=24)

_AGAIN = "{count} failed with a network or server error: retry all"
_RECONNECT = "{count} were refused because the shop no longer knows us: reconnect the shop, then retry with force"
_ADVICE: Mapping[FailureKind, str] = {
    FailureKind.RATE_LIMIT: "{count} met the shop's rate limit: retry later, or lower the concurrency",
    FailureKind.AUTHENTICATION: _RECONNECT,
    FailureKind.AUTHORIZATION: "{count} are not permitted: reconnect the shop with the right to write products",
    FailureKind.SHOP_CLOSED: "{count} met a closed shop: have the shop opened again, then retry with force",
    FailureKind.NOT_FOUND: "{count} no longer exist in the shop: re-sync the catalogue",
    FailureKind.VALIDATION: "{count} were refused as invalid: fix the rule or its floor, then preview again",
    FailureKind.NETWORK: _AGAIN,
    FailureKind.SERVER: _AGAIN,
    FailureKind.TIMEOUT: "{count} took too long: retry all",
    FailureKind.CONFLICT: "{count} had another price than was previewed: preview again",
    FailureKind.CANCELLED: "{count} were cancelled: retry them if they are still wanted",
    FailureKind.UNKNOWN: "{count} failed for an unknown reason: look at their errors",
}


def dead_letter_report(
    project_id: str, tallies: Iterable[DeadLetterTally], entries: Sequence[DeadLetter]
) -> DeadLetterReport:
    """The counts cover all dead letters; `entries` may contain only the first ones."""
    ordered = sorted(tallies, key=lambda tally: (-tally.count, tally.kind))
    return DeadLetterReport(
        project_id=project_id,
        total_failed=sum(tally.count for tally in ordered),
        retryable=sum(tally.retryable for tally in ordered),
        stale=sum(tally.stale for tally in ordered),
        by_error_type={tally.kind: tally.count for tally in ordered},
        recommendations=tuple(recommendation(tally.kind, tally.count) for tally in ordered),
        entries=tuple(entries),
    )


def recommendation(kind: FailureKind, count: int) -> str:
    return _ADVICE[kind].format(count=f"{count} {'variant' if count == 1 else 'variants'}")


WATCHED_FOR = timedelta(days=30)

_ROUNDING_DIFFERENCE = 1
_CRITICAL_SHARE = Decimal("0.01")


def reconciliation_report(
    run_id: int, found: Iterable[tuple[LiveTarget, Price | str]], now: datetime
) -> ReconciliationReport:
    """`found` pairs each target with its price in the shop, or with the reason why it could not be
    read."""
    checked, details, unverified = 0, list[Mismatch](), list[Unverified]()
    for target, actual in found:
        if isinstance(actual, str):
            unverified.append(Unverified(target_id=str(target.id), reason=actual))
            continue
        checked += 1
        mismatch = mismatch_of(target, actual)
        if mismatch is not None:
            details.append(mismatch)
    return ReconciliationReport(
        run_id=str(run_id),
        total_checked=checked,
        mismatches=len(details),
        timestamp=now,
        details=tuple(details),
        unverified=tuple(unverified),
    )


def mismatch_of(target: LiveTarget, actual: Price) -> Mismatch | None:
    """Every difference in price or currency is a mismatch, even one minor unit."""
    expected = target.expected
    if expected.equals(actual, with_compare_at=False):
        return None
    difference = share = None
    if expected.currency == actual.currency:
        difference = actual.unit_amount - expected.unit_amount
        if expected.unit_amount:
            share = round(float(Decimal(difference) / expected.unit_amount), 4)
    return Mismatch(
        target_id=str(target.id),
        sku_id=target.sku_id,
        expected_price=expected.unit_amount,
        actual_price=actual.unit_amount,
        currency=expected.currency,
        actual_currency=actual.currency,
        difference=difference,
        percentage_diff=share,
        severity=mismatch_severity(expected, actual),
    )


def mismatch_severity(expected: Price, actual: Price) -> MismatchSeverity:
    """A difference of one minor unit may come from the shop's rounding. Another currency is always
    critical."""
    difference = abs(actual.unit_amount - expected.unit_amount)
    if expected.currency != actual.currency:
        return MismatchSeverity.CRITICAL
    if difference <= _ROUNDING_DIFFERENCE:
        return MismatchSeverity.INFO
    is_critical = difference > expected.unit_amount * _CRITICAL_SHARE
    return MismatchSeverity.CRITICAL if is_critical else MismatchSeverity.WARNING


def worst_severity(report: ReconciliationReport) -> MismatchSeverity | None:
    severities = {one.severity for one in report.details}
    return next((one for one in reversed(MismatchSeverity) if one in severities), None)


def repairable_mismatches(report: ReconciliationReport) -> tuple[Mismatch, ...]:
    """Exclude prices in another currency, which an operator must check."""
    return tuple(one for one in report.details if one.difference is not None)


def in_daily_pass(finished_at: datetime, now: datetime) -> bool:
    """The daily pass includes a run from its last early check until thirty days after its end."""
    return FIRST_CHECKS[-1][1] < now - finished_at <= WATCHED_FOR


MIN_SAMPLE = 20
RATE_LIMIT_WINDOW = timedelta(minutes=5)

_LOW_SUCCESS, _CRITICAL_SUCCESS = Decimal("0.97"), Decimal("0.90")
_BACKLOG, _CRITICAL_BACKLOG = 50, 100
_MOST_RATE_LIMITS = 3


def evaluate_alerts(project_id: str, health: ProjectHealth) -> list[AlertCondition]:
    """Return at most one alert per name, with the highest severity that applies."""
    found: list[AlertCondition] = []

    def add(
        name: PricingAlertName, message: str, *, critical: bool, at: datetime | None = None
    ) -> None:
        severity = AlertSeverity.CRITICAL if critical else AlertSeverity.WARNING
        found.append(
            AlertCondition(
                name=name, severity=severity, subject=project_id, message=message, happened_at=at
            )
        )

    tried = health.applied + health.failed
    rate = success_rate(health.applied, health.failed)
    if rate is not None and tried >= MIN_SAMPLE and rate < _LOW_SUCCESS:
        message = f"Only {rate:.1%} of {tried} price changes succeeded."
        add(PricingAlertName.SUCCESS_RATE, message, critical=rate < _CRITICAL_SUCCESS)
    letters = health.dead_letters
    if letters > _BACKLOG:
        message = f"{letters} failed price changes wait for an operator."
        add(PricingAlertName.DEAD_LETTERS, message, critical=letters > _CRITICAL_BACKLOG)
    if health.rate_limits > _MOST_RATE_LIMITS:
        message = (
            f"The shop refused {health.rate_limits} calls in five minutes for coming too fast."
        )
        add(PricingAlertName.RATE_LIMITS, message, critical=False)
    circuit = health.circuit
    if circuit is not None:
        state = "is open: price changes wait"
        if circuit.opened_at is not None:
            state = f"opened at {circuit.opened_at:%H:%M:%S} UTC and has closed again: price changes waited"
        message = (
            f"The circuit of {circuit.shop} {state}, because calls were refused or failed in a row."
        )
        add(PricingAlertName.CIRCUIT_OPEN, message, critical=True, at=circuit.opened_at)
    return found


def broken_invariants(run_id: int, status: PricingRunState, counts: TargetCounts) -> list[str]:
    """Return a sentence for each invariant that the counts of a run's targets violate. Constraints of
    the tables enforce the invariants of single rows."""
    unfinished = counts.queued + counts.applying
    # A partly rolled back run may have no applied targets left, so `succeeded` includes both.
    lacks = counts.succeeded == 0 or counts.failed == 0
    checks = (
        (PricingRunState.APPLIED, counts.failed > 0, f"has {counts.failed} failed targets"),
        (PricingRunState.PARTIAL, lacks, "lacks applied or failed targets"),
        (PricingRunState.FAILED, counts.applied > 0, f"has {counts.applied} applied targets"),
        (
            PricingRunState.ROLLED_BACK,
            counts.applied > 0,
            f"has {counts.applied} applied targets left",
        ),
    )
    faults = [fault for state, is_broken, fault in checks if state is status and is_broken]
    if status in ENDED_RUN_STATES and unfinished > 0:
        faults.append(f"has {unfinished} unfinished targets")
    return [f"Run {run_id} is {status} and {fault}." for fault in faults]


MIN_SUCCESS_RATE = Decimal("0.97")
MAX_DEAD_LETTERS = 50
MAX_NAMED = 5
DAY_CHECKS = ("success_rate", "dead_letters", "no_mismatch", "invariants")


def evaluate_day(day: DayRuns) -> tuple[DayFinding, ...]:
    """Return one finding per check. A day without runs passes every check."""
    rate_check, letters, mismatch, invariants = DAY_CHECKS
    tried, rate = day.applied + day.failed, day.success_rate
    succeeded = f"{day.applied} of {tried} price changes succeeded."
    runs = _first_of([f"run {run_id}" for run_id in day.mismatched])
    mismatched = f"Prices in the shop are critically different from what was applied: {runs}."
    matched = "No check of the runs found a price that is critically different."
    return (
        DayFinding(
            rate_check,
            rate is None or tried < MIN_SAMPLE or rate >= MIN_SUCCESS_RATE,
            succeeded if tried else "No price change was tried.",
        ),
        DayFinding(
            letters,
            day.dead_letters <= MAX_DEAD_LETTERS,
            f"{day.dead_letters} failed price changes wait for an operator.",
        ),
        DayFinding(mismatch, not day.mismatched, mismatched if runs else matched, grave=True),
        DayFinding(
            invariants,
            not day.broken,
            _first_of(day.broken) or "Every run keeps its invariants.",
            grave=True,
        ),
    )


def _first_of(texts: Sequence[str]) -> str:
    more = len(texts) - MAX_NAMED
    named = ", ".join(text.rstrip(".") for text in texts[:MAX_NAMED])
    return f"{named}, and {more} more" if more > 0 else named
