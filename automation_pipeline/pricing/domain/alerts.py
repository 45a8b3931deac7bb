"""When somebody is called. Boundaries are strict: exactly at one, nobody is."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from automation_pipeline.pricing.domain.run_result import success_rate

LEAST_SAMPLE = 20
RATE_LIMIT_WINDOW = timedelta(minutes=5)

_LOW_SUCCESS, _CRITICAL_SUCCESS = Decimal("0.97"), Decimal("0.90")
_BACKLOG, _CRITICAL_BACKLOG = 50, 100
_MOST_RATE_LIMITS = 3


class AlertName(StrEnum):
    SUCCESS_RATE = "success_rate"
    DEAD_LETTERS = "dlq_size"
    RATE_LIMITS = "rate_limits"
    CIRCUIT_OPEN = "circuit_open"


class AlertSeverity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


_COOLDOWNS = {AlertSeverity.WARNING: timedelta(minutes=30), AlertSeverity.CRITICAL: timedelta(minutes=15)}


@dataclass(frozen=True, kw_only=True)
class Health:
    """Of one project: targets of the last hour, unacknowledged dead letters, refusals of five minutes, and the shop
    of its runs whose circuit is open."""

    applied: int = 0
    failed: int = 0
    dead_letters: int = 0
    rate_limits: int = 0
    open_circuit: str | None = None


@dataclass(frozen=True)
class Alert:
    name: AlertName
    severity: AlertSeverity
    message: str


@dataclass(frozen=True)
class Fired:
    """The last alert of a name in a project."""

    severity: AlertSeverity
    at: datetime


def alerts(health: Health) -> list[Alert]:
    """At most one a name, the most severe."""
    found = (
        _success(health.applied, health.failed),
        _backlog(health.dead_letters),
        _refusals(health.rate_limits),
        _circuit(health.open_circuit),
    )
    return [alert for alert in found if alert is not None]


def is_to_fire(severity: AlertSeverity, last: Fired | None, now: datetime) -> bool:
    """Once until its cooldown is over; what has become worse is told at once."""
    if last is None:
        return True
    became_worse = severity is AlertSeverity.CRITICAL and last.severity is AlertSeverity.WARNING
    return became_worse or now - last.at >= _COOLDOWNS[severity]


def _success(applied: int, failed: int) -> Alert | None:
    rate = success_rate(applied, failed)
    if rate is None or applied + failed < LEAST_SAMPLE or rate >= _LOW_SUCCESS:
        return None
    severity = AlertSeverity.CRITICAL if rate < _CRITICAL_SUCCESS else AlertSeverity.WARNING
    message = f"Only {rate:.1%} of {applied + failed} price changes succeeded."
    return Alert(AlertName.SUCCESS_RATE, severity, message)


def _backlog(size: int) -> Alert | None:
    if size <= _BACKLOG:
        return None
    severity = AlertSeverity.CRITICAL if size > _CRITICAL_BACKLOG else AlertSeverity.WARNING
    return Alert(AlertName.DEAD_LETTERS, severity, f"{size} failed price changes wait for somebody.")


def _refusals(count: int) -> Alert | None:
    if count <= _MOST_RATE_LIMITS:
        return None
    message = f"The shop refused {count} calls in five minutes for coming too fast."
    return Alert(AlertName.RATE_LIMITS, AlertSeverity.WARNING, message)


def _circuit(shop: str | None) -> Alert | None:
    if shop is None:
        return None
    message = f"The circuit of {shop} is open: price changes wait, because calls were refused or failed in a row."
    return Alert(AlertName.CIRCUIT_OPEN, AlertSeverity.CRITICAL, message)
