"""An alert that was raised: how it stands, and what its webhook says. When one is raised is in alerts.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from automation_pipeline.core.instants import iso
from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.core.webhooks import signed_headers
from automation_pipeline.org_jobs.domain.alerts import AlertName, AlertSeverity

EVENT = "org_jobs.alert"


class AlertStatus(StrEnum):
    """How its webhook stands. UNSENT: none was configured when it was raised."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"
    UNSENT = "unsent"


class OrgAlert(JsonModel):
    """`org_id` None: about the scheduler itself. `subject`: the id of the schedule, host or backfill, or what fits."""

    id: Id
    org_id: str | None
    name: AlertName
    severity: AlertSeverity
    subject: str
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
    org_id: str | None
    name: str
    severity: str
    subject: str
    message: str
    raised_at: datetime
    attempt: int


def message_of(alert: DueAlert) -> dict[str, object]:
    told = {
        "id": str(alert.id),
        "name": alert.name,
        "severity": alert.severity,
        "subject": alert.subject,
        "message": alert.message,
        "orgId": alert.org_id,
        "raisedAt": iso(alert.raised_at),
    }
    return {"event": EVENT, "alert": told}


def headers_of(alert: DueAlert, body: bytes, secret: str | None, at: datetime) -> Mapping[str, str]:
    """As webhooks about runs have them."""
    return signed_headers(EVENT, f"org-jobs-alert-{alert.id}", body, secret, int(at.timestamp()))
