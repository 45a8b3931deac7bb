"""Put the messages about a run's end into the post, in the transaction that ends it."""

from datetime import datetime

from automation_pipeline.automation.domain.events import PRODUCER, TENANT, job_id
from automation_pipeline.automation.domain.notifications import (
    EVENT,
    MOST_FAILURES,
    Notification,
    is_wanted,
    notifications_of,
)
from automation_pipeline.automation.domain.run import Run
from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.store.notifications import add_notifications, first_failures
from automation_pipeline.core.events import Event
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.outbox import enqueue


def notify_run(
    session: Session, run: Run, schedule: Schedule, *, now: datetime, breakdown: str | None = None
) -> list[Notification]:
    """Whom they are for. The ended `run` has its counts; saying it twice tells once."""
    if not is_wanted(schedule, run.status):
        return []
    failures = first_failures(session, run.id, MOST_FAILURES) if breakdown is None and run.failed_fiches else []
    messages = notifications_of(run, schedule, failures, breakdown)
    if messages:
        ids = add_notifications(session, run.id, messages, now)
        enqueue(session, [_event(message, row, now) for message, row in zip(messages, ids, strict=True)])
    return messages


def _event(message: Notification, notification_id: int, now: datetime) -> Event:
    return Event(
        tenant_id=TENANT,
        key=message.key,
        name=EVENT,
        producer=PRODUCER,
        correlation_id=job_id(message.run_id),
        occurred_at=now,
        payload={"notification_id": notification_id},
    )
