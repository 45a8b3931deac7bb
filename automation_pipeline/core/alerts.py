"""Alerts: how grave one is, and what became of its webhook."""

from enum import StrEnum


class AlertSeverity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


class AlertStatus(StrEnum):
    """How its webhook stands. UNSENT: none was configured when it was raised."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"
    UNSENT = "unsent"
