"""Raises alerts in the tables of packages, and delivers them to the receiver of their severity."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

from sqlalchemy import ColumnElement, func, insert, select
from sqlalchemy.orm import Mapped, Session

from automation_pipeline.core.alerts import (
    Alert,
    AlertCondition,
    AlertReceivers,
    AlertSeverity,
    AlertStatus,
    LastRaised,
    should_raise,
)
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.webhooks import (
    Delivery,
    DeliveryPolicy,
    WebhookAnswer,
    WebhookSender,
    body_of,
    signed_headers,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.deliveries import (
    DeliveryColumns,
    DeliveryQueue,
    claim_oldest,
    deliver_waiting,
    is_any_due,
    record_attempt,
)
from automation_pipeline.storage.statements import advisory_lock, among, database_now

DELIVERY_BATCH = 20
# Longer than any attempt, so that no other process claims an alert that is being sent.
HOLD_SECONDS = 120.0


class AlertColumns(DeliveryColumns, Protocol):
    name: Mapped[str]
    severity: Mapped[str]
    message: Mapped[str]
    raised_at: Mapped[datetime]


Row = TypeVar("Row", bound=AlertColumns)


@dataclass(frozen=True, kw_only=True)
class AlertTable(Generic[Row]):
    row: type[Row]
    event: str
    cooldowns: Mapping[AlertSeverity, timedelta]
    # The present conditions: at most one per name and subject.
    conditions: Callable[[Session, datetime], Sequence[AlertCondition]]
    # The column with the subject of a condition.
    subject: ColumnElement[str]
    # The values of a new alert for columns that only this table has.
    columns: Callable[[AlertCondition], Mapping[str, object]]
    # The subject of an alert, with the field names of the generic format.
    about: Callable[[Row], Mapping[str, str | None]]
    scope: Sequence[ColumnElement[bool]] = ()


def raise_alerts(
    alerts: AlertTable[Row], receivers: AlertReceivers, *, database: Database, clock: Clock
) -> Sequence[AlertCondition]:
    """Store the alerts that are due, and return their conditions. Two concurrent calls raise each
    alert once. Without a condition, nothing is locked."""
    now = clock.now()
    with database.reading() as session:
        found = alerts.conditions(session, now)
    if not found:
        return []
    with database.transaction() as session:
        advisory_lock(session, alerts.event)
        previous = last_raised(session, alerts, {condition.subject for condition in found})
        raised = [
            condition
            for condition in found
            if should_raise(
                condition,
                previous.get((condition.name, condition.subject)),
                now,
                alerts.cooldowns[condition.severity],
            )
        ]
        add_alerts(session, alerts, raised, now, receivers)
    return raised


def last_raised(
    session: Session, alerts: AlertTable[Row], subjects: Collection[str]
) -> Mapping[tuple[str, str], LastRaised]:
    row: type[AlertColumns] = alerts.row
    newest = (
        select(func.max(row.id))
        .where(*alerts.scope, among(session, alerts.subject, subjects))
        .group_by(row.name, alerts.subject)
    )
    query = select(row.name, alerts.subject, row.severity, row.raised_at)
    return {
        (name, subject): LastRaised(AlertSeverity(severity), at)
        for name, subject, severity, at in session.execute(query.where(row.id.in_(newest))).tuples()
    }


def add_alerts(
    session: Session,
    alerts: AlertTable[Row],
    raised: Sequence[AlertCondition],
    now: datetime,
    receivers: AlertReceivers,
) -> None:
    """An alert whose severity has no receiver is only stored."""
    if not raised:
        return
    rows = [
        {
            **alerts.columns(condition),
            "name": condition.name,
            "severity": condition.severity,
            "message": condition.message,
            "raised_at": now,
            "status": AlertStatus.PENDING
            if condition.severity in receivers
            else AlertStatus.UNSENT,
            "attempts": 0,
        }
        for condition in raised
    ]
    session.execute(insert(alerts.row).values(next_retry_at=database_now()), rows)


async def deliver_alerts(
    alerts: AlertTable[Row],
    receivers: AlertReceivers,
    *,
    sender: WebhookSender,
    secret: str | None,
    policy: DeliveryPolicy,
    database: Database,
) -> int:
    """Try to deliver the oldest due alerts, and return how many were tried. Without receivers,
    alerts keep waiting. `secret` signs messages in the generic format."""
    if not receivers:
        return 0

    def claim(session: Session) -> list[Alert]:
        rows = claim_oldest(session, alerts.row, limit=DELIVERY_BATCH, hold_seconds=HOLD_SECONDS)
        return [
            Alert(
                id=row.id,
                attempt=row.attempts,
                event=alerts.event,
                name=row.name,
                severity=AlertSeverity(row.severity),
                message=row.message,
                raised_at=row.raised_at,
                about=alerts.about(row),
            )
            for row in rows
        ]

    def record(session: Session, alert: Alert, delivery: Delivery) -> None:
        record_attempt(session, alerts.row, alert.id, alert.attempt, delivery)

    async def send(alert: Alert, now: datetime) -> WebhookAnswer:
        receiver = receivers.get(alert.severity)
        if receiver is None:
            raise PermanentError(
                f"No webhook is configured for alerts of severity {alert.severity}."
            )
        body = body_of(receiver.message_of(alert))
        headers = {"Content-Type": "application/json"}
        if receiver.shape == "generic":
            delivery = f"{alert.event.replace('.', '-').replace('_', '-')}-{alert.id}"
            headers = signed_headers(alert.event, delivery, body, secret, int(now.timestamp()))
        return await sender.send(receiver.url, body, headers)

    queue = DeliveryQueue(lambda session: is_any_due(session, alerts.row), claim, record)
    return await deliver_waiting(queue, send, policy=policy, database=database)
