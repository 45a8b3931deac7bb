"""Queries about notifications: unsent messages, and the status of each delivery."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from automation_pipeline.automation.models.runs import OutcomeStatus
from automation_pipeline.automation.rules.notifications import (
    FicheFailure,
    Notification,
    NotificationChannel,
)
from automation_pipeline.automation.tables import FicheResultRow, NotificationRow
from automation_pipeline.core.webhooks import Delivery, DeliveryStatus
from automation_pipeline.storage.statements import among, upsert

_KEY = ("run_id", "channel", "target")


@dataclass(frozen=True)
class StoredNotification:
    """A message with the number of its delivery attempts."""

    id: int
    attempts: int
    notification: Notification


def first_failures(session: Session, run_id: int, limit: int) -> list[FicheFailure]:
    """In the order of selection."""
    fiche = FicheResultRow
    query = (
        select(fiche.fiche_id, fiche.error)
        .where(fiche.run_id == run_id, fiche.status == OutcomeStatus.FAILED)
        .order_by(fiche.position)
        .limit(limit)
    )
    return [
        FicheFailure(fiche_id, error or "") for fiche_id, error in session.execute(query).tuples()
    ]


def add_notifications(
    session: Session, run_id: int, notifications: Sequence[Notification], now: datetime
) -> list[int]:
    """The ids of the rows, in the same order; existing rows do not change."""
    rows = [
        {
            "run_id": each.run_id,
            "channel": each.channel,
            "target": each.target,
            "payload": each.payload,
            "status": DeliveryStatus.PENDING,
            "attempts": 0,
            "created_at": now,
        }
        for each in notifications
    ]
    upsert(session, NotificationRow, rows, key=_KEY)
    row = NotificationRow
    query = select(row.channel, row.target, row.id).where(row.run_id == run_id)
    ids = {(channel, target): row_id for channel, target, row_id in session.execute(query).tuples()}
    return [ids[each.channel, each.target] for each in notifications]


def unsent(session: Session, ids: Sequence[int]) -> Mapping[int, StoredNotification]:
    """The unsent messages among these ids."""
    row = NotificationRow
    query = select(row).where(among(session, row.id, ids), row.status == DeliveryStatus.PENDING)
    return {found.id: _stored(found) for found in session.scalars(query)}


def record_notification_delivery(
    session: Session, notification_id: int, delivery: Delivery, now: datetime
) -> None:
    session.execute(
        update(NotificationRow)
        .where(
            NotificationRow.id == notification_id, NotificationRow.status == DeliveryStatus.PENDING
        )
        .values(
            status=delivery.status,
            attempts=delivery.attempts,
            status_code=delivery.status_code,
            response_body=delivery.response_body,
            last_error=delivery.error,
            sent_at=now if delivery.status is DeliveryStatus.SENT else None,
        )
        .execution_options(synchronize_session=False)
    )


def _stored(row: NotificationRow) -> StoredNotification:
    notification = Notification(
        row.run_id, NotificationChannel(row.channel), row.target, row.payload
    )
    return StoredNotification(row.id, row.attempts, notification)
