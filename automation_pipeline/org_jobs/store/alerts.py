"""Alerts as rows: the last of each name and subject, what is raised now, and who carries it to the webhook."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from automation_pipeline.core.delivery import Delivery
from automation_pipeline.org_jobs.domain.alerts import Alert, AlertName, AlertSeverity, Raised
from automation_pipeline.org_jobs.domain.raised_alert import AlertStatus, DueAlert, OrgAlert
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.tables import AlertRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.delivery_rows import claim_oldest, is_any_due, record_attempt
from automation_pipeline.storage.instants import database_now
from automation_pipeline.storage.turns import take_turn


def one_raiser_at_a_time(session: Session) -> None:
    take_turn(session, "org-alerts")


def last_raised(session: Session, subjects: Iterable[str]) -> Mapping[tuple[AlertName, str], Raised]:
    """By name and subject."""
    newest = (
        select(func.max(AlertRow.id))
        .where(among(session, AlertRow.subject, subjects))
        .group_by(AlertRow.name, AlertRow.subject)
    )
    rows = session.execute(
        select(AlertRow.name, AlertRow.subject, AlertRow.severity, AlertRow.raised_at).where(AlertRow.id.in_(newest))
    ).tuples()
    return {(AlertName(name), subject): Raised(AlertSeverity(severity), at) for name, subject, severity, at in rows}


def add_alerts(session: Session, raised: Sequence[Alert], now: datetime, *, has_webhook: bool) -> list[OrgAlert]:
    """With a webhook they wait to be carried there."""
    status = AlertStatus.PENDING if has_webhook else AlertStatus.UNSENT
    rows = [
        AlertRow(
            org_id=alert.org_id,
            name=alert.name,
            severity=alert.severity,
            subject=alert.subject,
            message=alert.message,
            raised_at=now,
            status=status,
            attempts=0,
            next_retry_at=database_now(),
        )
        for alert in raised
    ]
    session.add_all(rows)
    session.flush()
    return [_alert(row) for row in rows]


def list_alerts(
    session: Session, within: Within, *, org_id: str | None = None, limit: int, offset: int
) -> list[OrgAlert]:
    """Newest first. Those about the scheduler itself are for who reaches everywhere."""
    query = select(AlertRow).where(*_of(within, org_id)).order_by(AlertRow.id.desc()).limit(limit).offset(offset)
    return [_alert(row) for row in session.scalars(query)]


def count_alerts(session: Session, within: Within, *, org_id: str | None = None) -> int:
    return session.scalar(select(func.count(AlertRow.id)).where(*_of(within, org_id))) or 0


def is_alert_due(session: Session) -> bool:
    return is_any_due(session, AlertRow)


def claim_due(session: Session, *, limit: int, hold_seconds: float) -> list[DueAlert]:
    return [_due_alert(row) for row in claim_oldest(session, AlertRow, limit=limit, hold_seconds=hold_seconds)]


def record_delivery(session: Session, due: DueAlert, delivery: Delivery) -> None:
    record_attempt(session, AlertRow, due.id, due.attempt, delivery)


def _of(within: Within, org_id: str | None) -> list[ColumnElement[bool]]:
    return [AlertRow.org_id == one for one in (within.org_id, org_id) if one is not None]


def _alert(row: AlertRow) -> OrgAlert:
    return OrgAlert.model_validate({name: getattr(row, name) for name in OrgAlert.model_fields})


def _due_alert(row: AlertRow) -> DueAlert:
    return DueAlert(
        id=row.id,
        org_id=row.org_id,
        name=row.name,
        severity=row.severity,
        subject=row.subject,
        message=row.message,
        raised_at=row.raised_at,
        attempt=row.attempts,
    )
