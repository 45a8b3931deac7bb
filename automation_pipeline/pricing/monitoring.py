"""Dead letters and alerts: report, retry, acknowledge; raise, deliver."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import InvalidInputError, PermanentError, sentence_of
from automation_pipeline.core.events import Event
from automation_pipeline.core.webhooks import (
    AlertSeverity,
    DeliveryPolicy,
    WebhookAnswer,
    WebhookSender,
    body_of,
    signed_headers,
)
from automation_pipeline.pricing.models.history import DeadLetterReport, PricingAlert
from automation_pipeline.pricing.models.rules import TENANT
from automation_pipeline.pricing.models.runs import RetriedRuns
from automation_pipeline.pricing.queries.monitoring import (
    acknowledged_among,
    add_alerts,
    claim_due_alerts,
    dead_letter_tallies,
    dead_letters,
    dead_letters_by_run,
    health_of_projects,
    is_alert_due,
    last_alerts,
    lock_alerts,
    mark_acknowledged,
    record_alert_delivery,
)
from automation_pipeline.pricing.rules.monitoring import (
    dead_letter_report,
    evaluate_alerts,
    is_to_fire,
)
from automation_pipeline.pricing.runs import retry_run
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.deliveries import DeliveryQueue, deliver_waiting
from automation_pipeline.storage.outbox import enqueue

MAX_ENTRIES = 1000


def report_dead_letters(project_id: str, *, database: Database, clock: Clock) -> DeadLetterReport:
    """The numbers are those of all dead letters, the entries the oldest ones."""
    now = clock.now()
    with database.reading() as session:
        tallies = dead_letter_tallies(session, project_id, now)
        letters = dead_letters(session, project_id, now=now, limit=MAX_ENTRIES)
    return dead_letter_report(project_id, tallies, letters)


def retry_dead_letters(
    project_id: str, *, database: Database, clock: Clock, actor: str, force: bool = False
) -> RetriedRuns:
    """`force` retries hopeless targets too, whose cause was removed. A run that cannot be retried
    now is skipped."""
    report = report_dead_letters(project_id, database=database, clock=clock)
    now = clock.now()
    payload = report.model_dump(mode="json", by_alias=True, exclude={"entries"})
    key, aggregate = f"dlq:{project_id}:{round(now.timestamp() * 1000)}", f"project-{project_id}"
    event = Event(TENANT, key, "automation.dlq.report", "pricing", aggregate, now, payload)
    with database.transaction() as session:
        enqueue(session, [event])
        by_run = dead_letters_by_run(session, project_id, retryable_only=not force, now=now)
    retried: list[int] = []
    skipped: dict[int, str] = {}
    for run_id, targets in by_run.items():
        try:
            retry_run(
                run_id, database=database, clock=clock, actor=actor, target_ids=targets, force=force
            )
        except PermanentError as refusal:
            skipped[run_id] = sentence_of(refusal)
        else:
            retried.append(run_id)
    return RetriedRuns(tuple(retried), skipped)


def acknowledge_dead_letters(
    project_id: str,
    target_ids: Sequence[int] | None,
    *,
    database: Database,
    clock: Clock,
    actor: str,
) -> int:
    """How many more are acknowledged: all of the project, or the given ones. InvalidInputError, and
    none is, if one of them is no dead letter of the project. Safe to repeat."""
    with database.transaction() as session:
        marked = mark_acknowledged(session, project_id, target_ids, actor, clock.now())
        unknown = set(target_ids or ()) - set(marked)
        unknown -= set(acknowledged_among(session, project_id, unknown))
        if unknown:
            reason = f"is not a dead letter of project {project_id}"
            faults = tuple(("targetIds", f"{target_id} {reason}") for target_id in sorted(unknown))
            raise InvalidInputError("These targets cannot be acknowledged.", faults)
        return len(marked)


def raise_alerts(
    *, database: Database, clock: Clock, webhooks: Mapping[AlertSeverity, str]
) -> Sequence[PricingAlert]:
    """The alerts that are raised now, each once, also by two concurrent calls. An alert whose
    severity has no webhook is only stored."""
    now = clock.now()
    with database.reading() as session:
        healths = health_of_projects(session, now)
    found = [
        (project, alert) for project, health in healths.items() for alert in evaluate_alerts(health)
    ]
    if not found:
        return []
    with database.transaction() as session:
        lock_alerts(session)
        last = last_alerts(session, {project for project, _ in found})
        due = [
            (project, alert)
            for project, alert in found
            if is_to_fire(alert.severity, last.get((project, alert.name)), now)
        ]
        return add_alerts(session, due, now, webhooks=webhooks)


ALERT_EVENT = "pricing.alert"
ALERTS_AT_ONCE = 20
# Longer than any attempt, so that no other process claims an alert that is being sent.
HOLD_SECONDS = 120.0
_QUEUE = DeliveryQueue(
    is_alert_due,
    partial(claim_due_alerts, limit=ALERTS_AT_ONCE, hold_seconds=HOLD_SECONDS),
    record_alert_delivery,
)


async def deliver_alerts(
    *,
    sender: WebhookSender,
    secret: str | None,
    webhooks: Mapping[AlertSeverity, str],
    patience: DeliveryPolicy,
    database: Database,
) -> int:
    """How many were tried, the oldest first. The severity chooses the webhook."""

    async def send(alert: PricingAlert, now: datetime) -> WebhookAnswer:
        url = webhooks.get(alert.severity)
        if url is None:
            raise PermanentError(
                f"No webhook is configured for alerts of severity {alert.severity}."
            )
        shown = {
            "id": str(alert.id),
            "name": alert.name,
            "severity": alert.severity,
            "message": alert.message,
            "project": alert.project_id,
            "raisedAt": iso(alert.raised_at),
        }
        body = body_of({"event": ALERT_EVENT, "alert": shown})
        delivery = f"pricing-alert-{alert.id}"
        headers = signed_headers(ALERT_EVENT, delivery, body, secret, int(now.timestamp()))
        return await sender.send(url, body, headers)

    return await deliver_waiting(_QUEUE, send, patience=patience, database=database)
