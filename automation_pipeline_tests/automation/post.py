"""Helpers for tests of notifications: ended runs, delivery services, and stored records."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from sqlalchemy import select

from automation_pipeline.automation.events import NOTIFICATION_EVENT, Notification
from automation_pipeline.automation.models.runs import Reason
from automation_pipeline.automation.ports import DeliveryServices, EventPublisher, MailSender
from automation_pipeline.automation.queries.ledger import open_ledger, record_moves
from automation_pipeline.automation.queries.runs import as_run
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.relay import RelayCounts, relay_events
from automation_pipeline.automation.rules.fiches import failed_move
from automation_pipeline.automation.runs import notify_run, open_run
from automation_pipeline.automation.tables import NotificationRow, RunRow, ScheduleRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.webhooks import DeliveryPolicy, WebhookSender
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline_tests.factories import make_launch, make_schedule

HOOK = "https://hooks.example.com/run"
AT_ONCE = Backoff(base_seconds=0, cap_seconds=0)


def make_ended_run(
    database: Database,
    clock: Clock,
    failures: Iterable[str] = (),
    breakdown: str | None = None,
    **fields: Any,
) -> list[Notification]:
    """Create and end a run of a new schedule; return its notifications."""
    url = fields.pop("webhookUrl", HOOK)
    schedule = make_schedule(database, clock, ["1"], **fields)
    run_attempt = open_run(
        make_launch(schedule.id, f"dagster-{schedule.id}"), database=database, clock=clock
    )
    failures = list(failures)
    with database.transaction() as session:
        open_ledger(session, run_attempt.run_id, failures, 100, clock.now())
        moves = [
            failed_move(fiche, Reason.AUDIT_INCOMPLETE, f"Audit of {fiche} incomplete")
            for fiche in failures
        ]
        record_moves(session, run_attempt.run_id, moves, clock.now())
        session.get_one(
            ScheduleRow, schedule.id
        ).webhook_url = url  # bypasses the URL check: some receivers are on loopback
        row = session.get_one(RunRow, run_attempt.run_id)
        row.status = "failed" if failures or breakdown else "completed"
        row.failed_fiches, row.completed_at, row.duration_ms = len(failures), clock.now(), 61_000
        session.flush()
        ended, run = as_run(row), get_schedule(session, row.schedule_id)
        return notify_run(session, ended, run, now=clock.now(), breakdown=breakdown)


def delivery_services(
    webhooks: WebhookSender,
    mail: MailSender | None = None,
    publisher: EventPublisher | None = None,
    *,
    attempts: int = 3,
    backoff: Backoff = AT_ONCE,
    attempt_seconds: float = 5.0,
) -> DeliveryServices:
    policy = DeliveryPolicy(attempts, backoff, attempt_seconds)
    services = SimpleNamespace(
        webhooks=webhooks,
        mail=mail,
        publisher=publisher,
        webhook_secret="s3cret",
        delivery_policy=policy,
    )
    return cast("DeliveryServices", services)


def relay(
    services: DeliveryServices,
    database: Database,
    hold_seconds: float = 60.0,
    budget_seconds: float = 20.0,
) -> RelayCounts:
    return asyncio.run(
        relay_events(
            services, database=database, hold_seconds=hold_seconds, budget_seconds=budget_seconds
        )
    )


def records(database: Database) -> list[NotificationRow]:
    with database.reading() as session:
        return list(session.scalars(select(NotificationRow).order_by(NotificationRow.id)))


def outbox(database: Database, name: str = NOTIFICATION_EVENT) -> list[OutboxRow]:
    """Return the outbox events with the given name."""
    with database.reading() as session:
        return list(
            session.scalars(
                select(OutboxRow).where(OutboxRow.event_name == name).order_by(OutboxRow.id)
            )
        )
