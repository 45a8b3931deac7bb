"""Alerts: when to raise one, and the message for its receiver."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from html import escape

from automation_pipeline.core.clock import iso
from automation_pipeline.core.settings_types import AlertShape

# PagerDuty refuses an event whose texts are longer.
PAGERDUTY_KEY_LENGTH = 255
PAGERDUTY_SUMMARY_LENGTH = 1024


class AlertSeverity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


class AlertStatus(StrEnum):
    """The state of its webhook. UNSENT: none was configured when the alert was raised."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"
    UNSENT = "unsent"


@dataclass(frozen=True, kw_only=True)
class AlertCondition:
    """A reason for an alert, which `name` and `subject` identify. An event has `happened_at` and is
    raised once. A condition without it persists and is raised again after each cooldown. Alerts of
    organisations have `org_id`."""

    name: str
    severity: AlertSeverity
    subject: str
    message: str
    happened_at: datetime | None = None
    org_id: str | None = None


@dataclass(frozen=True)
class LastRaised:
    severity: AlertSeverity
    at: datetime


def should_raise(
    condition: AlertCondition, previous: LastRaised | None, now: datetime, cooldown: timedelta
) -> bool:
    """An alert that becomes critical is raised despite its cooldown."""
    if previous is None:
        return True
    if condition.happened_at is not None and condition.happened_at <= previous.at:
        return False
    escalates = (
        condition.severity is AlertSeverity.CRITICAL and previous.severity is AlertSeverity.WARNING
    )
    return escalates or now - previous.at >= cooldown


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An alert to deliver. `about` has the fields of its subject, with the names of the generic
    message."""

    id: int
    attempt: int
    event: str
    name: str
    severity: AlertSeverity
    message: str
    raised_at: datetime
    about: Mapping[str, str | None]


@dataclass(frozen=True)
class AlertReceiver:
    url: str
    shape: AlertShape = "generic"
    # The integration key of PagerDuty. Other shapes do not use it.
    routing_key: str | None = field(default=None, repr=False)

    def message_of(self, alert: Alert) -> Mapping[str, object]:
        return _MESSAGES[self.shape](alert, self)


AlertReceivers = Mapping[AlertSeverity, AlertReceiver]


def _generic(alert: Alert, _receiver: AlertReceiver) -> Mapping[str, object]:
    content = {
        "id": str(alert.id),
        "name": alert.name,
        "severity": alert.severity,
        "message": alert.message,
        "raisedAt": iso(alert.raised_at),
        **alert.about,
    }
    return {"event": alert.event, "alert": content}


def _slack(alert: Alert, _receiver: AlertReceiver) -> Mapping[str, object]:
    """A message for an incoming webhook of Slack. Names and errors can contain addresses and
    `<!channel>`, so the text is escaped and previews are off."""
    lines = (
        f"{alert.severity.upper()}: {alert.name} ({alert.event})",
        alert.message,
        *(f"{name}: {value}" for name, value in alert.about.items() if value is not None),
        f"raisedAt: {iso(alert.raised_at)}",
    )
    text = escape("\n".join(lines), quote=False)
    return {"text": text, "mrkdwn": False, "unfurl_links": False, "unfurl_media": False}


def _pagerduty(alert: Alert, receiver: AlertReceiver) -> Mapping[str, object]:
    """An event for the Events API v2. Alerts with the same name and subject have the same key, so a
    repetition joins the open incident. Alerts have no end, so nothing resolves the incident."""
    subject = [value for value in alert.about.values() if value is not None]
    return {
        "routing_key": receiver.routing_key,
        "event_action": "trigger",
        "dedup_key": ":".join((alert.event, alert.name, *subject))[:PAGERDUTY_KEY_LENGTH],
        "payload": {
            "summary": alert.message[:PAGERDUTY_SUMMARY_LENGTH],
            "source": "automation-pipeline",
            "severity": alert.severity,  # PagerDuty also has `error` and `info`
            "timestamp": iso(alert.raised_at),
            "group": alert.event,
            "class": alert.name,
            "custom_details": {"id": str(alert.id), **alert.about},
        },
    }


_MESSAGES: Mapping[AlertShape, Callable[[Alert, AlertReceiver], Mapping[str, object]]] = {
    "generic": _generic,
    "slack": _slack,
    "pagerduty": _pagerduty,
}
