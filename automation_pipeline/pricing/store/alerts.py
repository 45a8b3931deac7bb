"""Alerts as rows: the last of each name in a project, what is raised now, and who carries it to the webhook."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from automation_pipeline.core.delivery import Delivery
from automation_pipeline.pricing.domain.alerts import Alert, AlertName, AlertSeverity, Fired
from automation_pipeline.pricing.domain.pricing_rule import TENANT
from automation_pipeline.pricing.domain.raised_alert import AlertStatus, DueAlert, PricingAlert
from automation_pipeline.pricing.tables import AlertRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.delivery_rows import claim_oldest, is_any_due, record_attempt
from automation_pipeline.storage.instants import database_now
from automation_pipeline.storage.turns import take_turn


def one_raiser_at_a_time(session: Session) -> None:
    take_turn(session, "pricing-alerts")


def last_fired(session: Session, project_ids: Collection[str]) -> Mapping[tuple[str, AlertName], Fired]:
    """By project and name."""
    newest = (
        select(func.max(AlertRow.id))
        .where(AlertRow.tenant_id == TENANT, among(session, AlertRow.project_id, project_ids))
        .group_by(AlertRow.project_id, AlertRow.name)
    )
    rows = session.execute(
        select(AlertRow.project_id, AlertRow.name, AlertRow.severity, AlertRow.raised_at).where(AlertRow.id.in_(newest))
    ).tuples()
    return {
        (project, AlertName(name)): Fired(AlertSeverity(severity), raised_at)
        for project, name, severity, raised_at in rows
    }


def add_alerts(
    session: Session, raised: Iterable[tuple[str, Alert]], now: datetime, *, webhooks: Mapping[AlertSeverity, str]
) -> list[PricingAlert]:
    """By project. An alert whose severity has a webhook waits for its delivery."""
    rows = [
        AlertRow(
            tenant_id=TENANT,
            project_id=project,
            name=alert.name,
            severity=alert.severity,
            message=alert.message,
            raised_at=now,
            status=AlertStatus.PENDING if alert.severity in webhooks else AlertStatus.UNSENT,
            attempts=0,
            next_retry_at=database_now(),
        )
        for project, alert in raised
    ]
    session.add_all(rows)
    session.flush()
    return [_alert(row) for row in rows]


def list_alerts(session: Session, project_id: str | None, limit: int, offset: int) -> list[PricingAlert]:
    """Newest first; of all projects without one."""
    query = select(AlertRow).where(*_of(project_id)).order_by(AlertRow.id.desc()).limit(limit).offset(offset)
    return [_alert(row) for row in session.scalars(query)]


def count_alerts(session: Session, project_id: str | None) -> int:
    return session.scalar(select(func.count(AlertRow.id)).where(*_of(project_id))) or 0


def is_alert_due(session: Session) -> bool:
    return is_any_due(session, AlertRow)


def claim_due(session: Session, *, limit: int, hold_seconds: float) -> list[DueAlert]:
    return [_due_alert(row) for row in claim_oldest(session, AlertRow, limit=limit, hold_seconds=hold_seconds)]


def record_delivery(session: Session, due: DueAlert, delivery: Delivery) -> None:
    record_attempt(session, AlertRow, due.id, due.attempt, delivery)


def _of(project_id: str | None) -> Sequence[ColumnElement[bool]]:
    ours = AlertRow.tenant_id == TENANT
    return (ours,) if project_id is None else (ours, AlertRow.project_id == project_id)


def _alert(row: AlertRow) -> PricingAlert:
    return PricingAlert.model_validate({name: getattr(row, name) for name in PricingAlert.model_fields})


def _due_alert(row: AlertRow) -> DueAlert:
    return DueAlert(
        id=row.id,
        project_id=row.project_id,
        name=row.name,
        severity=row.severity,
        message=row.message,
        raised_at=row.raised_at,
        attempt=row.attempts,
    )
