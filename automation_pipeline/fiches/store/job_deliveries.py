"""Webhooks of jobs over days: written with the progress that they tell of, claimed by who sends them, one a job at a
time and in order."""

from datetime import datetime

from sqlalchemy import ColumnElement, exists, select, update
from sqlalchemy.orm import Session, aliased

from automation_pipeline.core.delivery import Delivery, DeliveryStatus
from automation_pipeline.fiches.domain.fetch_events import DueDelivery
from automation_pipeline.fiches.tables import FetchDeliveryRow, FetchJobRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.instants import database_now
from automation_pipeline.storage.types import JsonObject


def add_delivery(session: Session, job_id: str, url: str, body: JsonObject, now: datetime) -> None:
    session.add(
        FetchDeliveryRow(
            job_id=job_id,
            event=str(body["event"]),
            url=url,
            payload=body,
            status=DeliveryStatus.PENDING.value,
            attempt=0,
            next_retry_at=database_now(),
            created_at=now,
        )
    )
    session.flush()


def is_delivery_due(session: Session) -> bool:
    return session.scalar(select(FetchDeliveryRow.id).where(*_due()).limit(1)) is not None


def claim_due(session: Session, *, limit: int, hold_seconds: float) -> list[DueDelivery]:
    """Nobody else gets them until the hold ends; each claim is an attempt, also of somebody who dies over it."""
    oldest = (
        select(FetchDeliveryRow.id)
        .where(*_due())
        .order_by(FetchDeliveryRow.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("oldest")  # run once: PostgreSQL may repeat a subquery, and with SKIP LOCKED each time finds other rows
    )
    claimed = session.scalars(
        update(FetchDeliveryRow)
        .where(FetchDeliveryRow.id.in_(select(oldest.c.id)))
        .values(attempt=FetchDeliveryRow.attempt + 1, next_retry_at=database_now(hold_seconds))
        .returning(FetchDeliveryRow)
        .execution_options(synchronize_session=False)
    ).all()
    secrets = _secrets(session, {row.job_id for row in claimed})
    return [_due_delivery(row, secrets.get(row.job_id)) for row in sorted(claimed, key=lambda row: row.id)]


def record_delivery(session: Session, due: DueDelivery, delivery: Delivery) -> None:
    """Nothing, when somebody else has claimed it since."""
    sent = delivery.status is DeliveryStatus.SENT
    row = FetchDeliveryRow
    session.execute(
        update(row)
        .where(row.id == due.id, row.attempt == due.attempt, row.status == DeliveryStatus.PENDING)
        .values(
            status=delivery.status.value,
            status_code=delivery.status_code,
            response_body=delivery.response_body,
            last_error=delivery.error,
            next_retry_at=database_now(delivery.pause_seconds),
            sent_at=database_now() if sent else None,
        )
        .execution_options(synchronize_session=False)
    )


def _due() -> tuple[ColumnElement[bool], ...]:
    """Waiting, its time has come, and nothing older of the same job waits."""
    older = aliased(FetchDeliveryRow)
    waits_behind = exists(
        select(older.id).where(
            older.job_id == FetchDeliveryRow.job_id,
            older.id < FetchDeliveryRow.id,
            older.status == DeliveryStatus.PENDING,
        )
    )
    return (
        FetchDeliveryRow.status == DeliveryStatus.PENDING,
        FetchDeliveryRow.next_retry_at <= database_now(),
        ~waits_behind,
    )


def _secrets(session: Session, job_ids: set[str]) -> dict[str, str | None]:
    query = select(FetchJobRow.id, FetchJobRow.webhook_secret).where(among(session, FetchJobRow.id, job_ids))
    return dict(session.execute(query).tuples().all())


def _due_delivery(row: FetchDeliveryRow, secret: str | None) -> DueDelivery:
    return DueDelivery(
        id=row.id,
        job_id=row.job_id,
        event=row.event,
        url=row.url,
        payload=row.payload,
        attempt=row.attempt,
        secret=secret,
    )
