"""Records of ended runs: price changes, dead letters, checks against the shop, alerts, days."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from automation_pipeline.core.alerts import AlertSeverity, AlertStatus
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.pricing.models.runs import FIRST_CHECKS, RuleRun, success_rate
from automation_pipeline.pricing.models.shop import FailureKind, Price


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
    """A field that is None selects every change."""

    project_id: str | None = None
    variant_id: str | None = None
    run_id: int | None = None
    since: datetime | None = None


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
    """The number of dead letters of one kind, of the retryable ones, and of the old ones."""

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
    """Prices are in minor units. `difference` is actual less expected, if the currencies are
    equal."""

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
    """`total_checked` counts the prices that could be read; `unverified` are those that could not."""

    run_id: str
    total_checked: int
    mismatches: int
    timestamp: Instant
    details: tuple[Mismatch, ...]
    unverified: tuple[Unverified, ...]


@dataclass(frozen=True)
class LiveTarget:
    """An applied target whose price no later run has replaced."""

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


@dataclass(frozen=True, kw_only=True)
class ProjectHealth:
    """Of one project: targets of the last hour, unacknowledged dead letters, refusals of five
    minutes, and the shop of its runs whose circuit is open."""

    applied: int = 0
    failed: int = 0
    dead_letters: int = 0
    rate_limits: int = 0
    open_circuit: str | None = None


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
    different price in the shop; `broken` names each invariant that does not hold in a sentence."""

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
