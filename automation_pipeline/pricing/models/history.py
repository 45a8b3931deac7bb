"""What follows a run: price changes, dead letters, checks against the shop, alerts, days."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.core.webhooks import AlertSeverity, AlertStatus, signed_headers
from automation_pipeline.pricing.models.runs import PricingRunState, success_rate
from automation_pipeline.pricing.models.shop import FailureKind, Price


class PriceChange(JsonModel):
    """Amounts are in minor units. `was_found`: the shop had the price already, from a call whose
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
    """What is None chooses nothing out."""

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
    """How many dead letters of a kind there are, how many of them are worth another try, and how
    many lie for long."""

    kind: FailureKind
    count: int
    retryable: int
    stale: int


class DeadLetterReport(JsonModel):
    """`by_error_type` is ordered by how many; the entries by when they failed, the first ones where
    there are many."""

    project_id: str
    total_failed: int
    retryable: int
    stale: int
    by_error_type: dict[FailureKind, int]
    recommendations: tuple[str, ...]
    entries: tuple[DeadLetter, ...]


# The first check is done within five minutes, so it is due two minutes earlier: a sensor files it
# and a run does it.
FIRST_CHECKS = (("5m", timedelta(minutes=3)), ("1h", timedelta(hours=1)))


class MismatchSeverity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Mismatch(JsonModel):
    """Prices in minor units of the expected currency; `difference` is actual less expected, if they
    can be compared."""

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
    """`total_checked` counts the prices that could be read; `unverified` those that could not,
    which proves nothing."""

    run_id: str
    total_checked: int
    mismatches: int
    timestamp: Instant
    details: tuple[Mismatch, ...]
    unverified: tuple[Unverified, ...]


@dataclass(frozen=True, kw_only=True)
class PriceReading:
    """An applied target and its price in the shop; or why that could not be read."""

    target_id: str
    sku_id: str | None
    expected: Price
    actual: Price | None
    reason: str = "the shop did not tell its price"


MANUAL_PREFIX = "manual-"

_FIRST_NAMES = tuple(name for name, _ in FIRST_CHECKS)
_OTHER_NAMES = re.compile(rf"\d{{4}}-\d{{2}}-\d{{2}}|{MANUAL_PREFIX}[1-9]\d*", re.ASCII)


class RuleCheck(JsonModel):
    """Until `checked_at` is there, it is only due. `worst` is the gravest of the differences that
    were found."""

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


@dataclass(frozen=True)
class AlertCandidate:
    name: PricingAlertName
    severity: AlertSeverity
    message: str


@dataclass(frozen=True)
class LastAlert:
    """The last alert of a name in a project."""

    severity: AlertSeverity
    at: datetime


ALERT_EVENT = "pricing.alert"


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


@dataclass(frozen=True, kw_only=True)
class DuePricingAlert:
    """One whose webhook is to be called now, for the `attempt`-th time."""

    id: int
    project_id: str
    name: str
    severity: str
    message: str
    raised_at: datetime
    attempt: int


def alert_payload(alert: DuePricingAlert) -> dict[str, object]:
    told = {
        "id": str(alert.id),
        "name": alert.name,
        "severity": alert.severity,
        "message": alert.message,
        "project": alert.project_id,
        "raisedAt": iso(alert.raised_at),
    }
    return {"event": ALERT_EVENT, "alert": told}


def alert_headers(
    alert: DuePricingAlert, body: bytes, secret: str | None, at: datetime
) -> Mapping[str, str]:
    """As webhooks about runs have them."""
    return signed_headers(
        ALERT_EVENT, f"pricing-alert-{alert.id}", body, secret, int(at.timestamp())
    )


@dataclass(frozen=True, kw_only=True)
class DayRun:
    """`applied` counts what was rolled back since; `failed` not what was cancelled. `has_mismatch`:
    its last check found a price in the shop that is critically different."""

    id: int
    rule_name: str
    project_id: str
    trigger: str
    status: PricingRunState
    finished_at: datetime
    apply_ms: int | None
    applied: int = 0
    failed: int = 0
    dead_letters: int = 0
    has_mismatch: bool = False

    @property
    def success_rate(self) -> Decimal | None:
        return success_rate(self.applied, self.failed)


@dataclass(frozen=True)
class DayRuns:
    """`broken` are the invariants that do not hold, each in a sentence."""

    runs: Sequence[DayRun]
    broken: Sequence[str] = ()

    @property
    def applied(self) -> int:
        return sum(run.applied for run in self.runs)

    @property
    def failed(self) -> int:
        return sum(run.failed for run in self.runs)

    @property
    def dead_letters(self) -> int:
        return sum(run.dead_letters for run in self.runs)

    @property
    def mismatched(self) -> Sequence[int]:
        return [run.id for run in self.runs if run.has_mismatch]

    @property
    def success_rate(self) -> Decimal | None:
        return success_rate(self.applied, self.failed)
