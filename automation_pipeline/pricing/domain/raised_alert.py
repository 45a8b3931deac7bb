"""An alert that was raised: how it stands, and what its webhook says. When one is raised is in alerts.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from automation_pipeline.core.instants import iso
from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.core.webhooks import signed_headers
from automation_pipeline.pricing.domain.alerts import AlertName, AlertSeverity

EVENT = "pricing.alert"


class AlertStatus(StrEnum):
    """How its webhook stands. UNSENT: none was configured when it was raised."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"
    UNSENT = "unsent"


class PricingAlert(JsonModel):
    id: Id
    project_id: str
    name: AlertName
    severity: AlertSeverity
    message: str
    raised_at: Instant
    status: AlertStatus
    attempts: int
    status_code: int | None
    last_error: str | None
    sent_at: Instant | None


@dataclass(frozen=True, kw_only=True)
class DueAlert:
    """One whose webhook is to be called now, for the `attempt`-th time."""

    id: int
    project_id: str
    name: str
    severity: str
    message: str
    raised_at: datetime
    attempt: int


def message_of(alert: DueAlert) -> dict[str, object]:
    told = {
        "id": str(alert.id),
        "name": alert.name,
        "severity": alert.severity,
        "message": alert.message,
        "project": alert.project_id,
        "raisedAt": iso(alert.raised_at),
    }
    return {"event": EVENT, "alert": told}


def headers_of(alert: DueAlert, body: bytes, secret: str | None, at: datetime) -> Mapping[str, str]:
    """As webhooks about runs have them."""
    return signed_headers(EVENT, f"pricing-alert-{alert.id}", body, secret, int(at.timestamp()))
