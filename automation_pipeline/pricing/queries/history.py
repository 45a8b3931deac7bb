"""Queries about price changes and alerts, and which old rows are removed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import BigInteger, ColumnElement, cast, exists, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.core.webhooks import AlertSeverity, AlertStatus, Delivery
from automation_pipeline.pricing.models.history import (
    AlertCandidate,
    DuePricingAlert,
    LastAlert,
    PriceChange,
    PriceChangeFilter,
    PricingAlert,
    PricingAlertName,
)
from automation_pipeline.pricing.models.rules import TENANT
from automation_pipeline.pricing.models.runs import ACTIVE_RUN_STATES, RULE_RUN, RULE_TARGET
from automation_pipeline.pricing.tables import (
    PriceChangeRow,
    PricingAlertRow,
    RuleRunRow,
    RuleTargetRow,
)
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.deliveries import claim_oldest, is_any_due, record_attempt
from automation_pipeline.storage.retention import Kind
from automation_pipeline.storage.statements import advisory_lock, among
from automation_pipeline.storage.transitions import TransitionRow


def price_changes(
    session: Session, chosen: PriceChangeFilter, limit: int, after_id: int = 0
) -> list[PriceChange]:
    """`after_id` is the last one of the page before."""
    query = select(PriceChangeRow).where(PriceChangeRow.id > after_id, *_change_conditions(chosen))
    rows = session.scalars(query.order_by(PriceChangeRow.id).limit(limit))
    return [
        PriceChange.model_validate({name: getattr(row, name) for name in PriceChange.model_fields})
        for row in rows
    ]


def _change_conditions(chosen: PriceChangeFilter) -> list[ColumnElement[bool]]:
    conditions = [PriceChangeRow.tenant_id == TENANT]
    if chosen.project_id is not None:
        conditions.append(PriceChangeRow.project_id == chosen.project_id)
    if chosen.variant_id is not None:
        conditions.append(PriceChangeRow.variant_id == chosen.variant_id)
    if chosen.run_id is not None:
        conditions.append(PriceChangeRow.rule_run_id == chosen.run_id)
    if chosen.since is not None:
        conditions.append(PriceChangeRow.applied_at >= chosen.since)
    return conditions


def lock_alerts(session: Session) -> None:
    advisory_lock(session, "pricing-alerts")


def last_alerts(
    session: Session, project_ids: Collection[str]
) -> Mapping[tuple[str, PricingAlertName], LastAlert]:
    """By project and name."""
    newest = (
        select(func.max(PricingAlertRow.id))
        .where(
            PricingAlertRow.tenant_id == TENANT,
            among(session, PricingAlertRow.project_id, project_ids),
        )
        .group_by(PricingAlertRow.project_id, PricingAlertRow.name)
    )
    rows = session.execute(
        select(
            PricingAlertRow.project_id,
            PricingAlertRow.name,
            PricingAlertRow.severity,
            PricingAlertRow.raised_at,
        ).where(PricingAlertRow.id.in_(newest))
    ).tuples()
    return {
        (project, PricingAlertName(name)): LastAlert(AlertSeverity(severity), raised_at)
        for project, name, severity, raised_at in rows
    }


def add_alerts(
    session: Session,
    raised: Iterable[tuple[str, AlertCandidate]],
    now: datetime,
    *,
    webhooks: Mapping[AlertSeverity, str],
) -> list[PricingAlert]:
    """By project. An alert whose severity has a webhook waits for its delivery."""
    rows = [
        PricingAlertRow(
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


def list_alerts(
    session: Session, project_id: str | None, limit: int, offset: int
) -> list[PricingAlert]:
    """Newest first; of all projects without one."""
    query = (
        select(PricingAlertRow)
        .where(*_alert_conditions(project_id))
        .order_by(PricingAlertRow.id.desc())
        .limit(limit)
        .offset(offset)
    )
    return [_alert(row) for row in session.scalars(query)]


def count_alerts(session: Session, project_id: str | None) -> int:
    return (
        session.scalar(select(func.count(PricingAlertRow.id)).where(*_alert_conditions(project_id)))
        or 0
    )


def is_alert_due(session: Session) -> bool:
    return is_any_due(session, PricingAlertRow)


def claim_due_alerts(session: Session, *, limit: int, hold_seconds: float) -> list[DuePricingAlert]:
    return [
        _due_alert(row)
        for row in claim_oldest(session, PricingAlertRow, limit=limit, hold_seconds=hold_seconds)
    ]


def record_alert_delivery(session: Session, due: DuePricingAlert, delivery: Delivery) -> None:
    record_attempt(session, PricingAlertRow, due.id, due.attempt, delivery)


def _alert_conditions(project_id: str | None) -> Sequence[ColumnElement[bool]]:
    ours = PricingAlertRow.tenant_id == TENANT
    return (ours,) if project_id is None else (ours, PricingAlertRow.project_id == project_id)


def _alert(row: PricingAlertRow) -> PricingAlert:
    return PricingAlert.model_validate(
        {name: getattr(row, name) for name in PricingAlert.model_fields}
    )


def _due_alert(row: PricingAlertRow) -> DuePricingAlert:
    return DuePricingAlert(
        id=row.id,
        project_id=row.project_id,
        name=row.name,
        severity=row.severity,
        message=row.message,
        raised_at=row.raised_at,
        attempt=row.attempts,
    )


def _old_alerts(before: datetime) -> Sequence[ColumnElement[bool]]:
    """An alert is raised again after hours: nobody looks for one this old."""
    return PricingAlertRow.raised_at <= before, PricingAlertRow.status != AlertStatus.PENDING


def _old_moves(before: datetime) -> Sequence[ColumnElement[bool]]:
    """Not those of a run that works, or is wished to."""
    works = or_(RuleRunRow.status.in_(ACTIVE_RUN_STATES), RuleRunRow.wish.is_not(None))
    entity = cast(TransitionRow.entity_id, BigInteger)
    its_run = select(RuleTargetRow.rule_run_id).where(RuleTargetRow.id == entity).scalar_subquery()
    run_works = exists().where(RuleRunRow.id == entity, works)
    target_works = exists().where(RuleRunRow.id == its_run, works)
    of_run, of_target = (
        TransitionRow.machine == RULE_RUN.name,
        TransitionRow.machine == RULE_TARGET.name,
    )
    return TransitionRow.at <= before, or_(of_run & ~run_works, of_target & ~target_works)


ALERTS = Kind("pricing_alerts", PricingAlertRow, _old_alerts)
MOVES = Kind("state_transitions, pricing", TransitionRow, _old_moves)
