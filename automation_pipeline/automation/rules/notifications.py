"""The receivers of notifications about a run's end, with webhook payloads and e-mails."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from automation_pipeline.automation.models.runs import Run, RunStatus, failed_days
from automation_pipeline.automation.models.schedules import Schedule
from automation_pipeline.core.webhooks import signed_headers

# A message lists the first failures and counts all of them; the run lists the others.
MAX_FAILURES = 100

NOTIFICATION_EVENT = "automation/notification"


class NotificationChannel(StrEnum):
    WEBHOOK = "webhook"
    EMAIL = "email"


@dataclass(frozen=True)
class FicheFailure:
    fiche_id: str
    error: str


@dataclass(frozen=True)
class Notification:
    """A message to one receiver. `key` is the same for every delivery of the message, so that
    receivers can detect repeats."""

    run_id: int
    channel: NotificationChannel
    target: str
    payload: Mapping[str, object]

    @property
    def key(self) -> str:
        receiver = hashlib.sha256(self.target.encode()).hexdigest()[:16]
        return f"notification-{self.run_id}-{self.channel}-{receiver}"


def is_wanted(schedule: Schedule, status: RunStatus) -> bool:
    """Whether the schedule requests notifications for this status. The caller decides about a run
    that found no work."""
    return (
        schedule.notify_on_complete if status is RunStatus.COMPLETED else schedule.notify_on_error
    )


def notifications_of(
    run: Run, schedule: Schedule, failures: Sequence[FicheFailure], breakdown: str | None
) -> list[Notification]:
    """One notification per receiver. `failures` are the first failures; with a breakdown, the
    message has no counts."""
    if not is_wanted(schedule, run.status):
        return []
    messages: list[Notification] = []
    if schedule.webhook_url:
        payload = webhook_payload(run, schedule.name, failures, breakdown)
        messages.append(
            Notification(run.id, NotificationChannel.WEBHOOK, schedule.webhook_url, payload)
        )
    if schedule.notify_emails:
        mail = email_payload(run, schedule.name, failures, breakdown)
        receivers = dict.fromkeys(schedule.notify_emails)
        messages += [
            Notification(run.id, NotificationChannel.EMAIL, receiver, mail)
            for receiver in receivers
        ]
    return messages


def webhook_payload(
    run: Run, schedule_name: str, failures: Sequence[FicheFailure], breakdown: str | None
) -> dict[str, object]:
    about = {
        "schedule_id": str(run.schedule_id),
        "schedule_name": schedule_name,
        "run_id": str(run.id),
    }
    if breakdown is not None:
        return {
            **about,
            "status": run.status.value,
            "error": breakdown,
            "duration_seconds": duration_seconds(run),
            **_unread_days(run),
        }
    return {
        **about,
        "status": run.status.value,
        "duration_seconds": duration_seconds(run),
        "total_fiches": run.total_fiches,
        "successful_fiches": run.successful_fiches,
        "failed_fiches": run.failed_fiches,
        "ignored_fiches": run.ignored_fiches,
        "transcriptions_run": run.transcriptions_run,
        "audits_run": run.audits_run,
        "failures": [
            {"ficheId": failure.fiche_id, "error": failure.error}
            for failure in failures[:MAX_FAILURES]
        ],
        "failures_total": run.failed_fiches,
        **_unread_days(run),
    }


def _unread_days(run: Run) -> dict[str, object]:
    """The days whose sales list the CRM did not return, if there are any."""
    days = failed_days(run)
    return {"failed_days": days[:MAX_FAILURES]} if days else {}


def email_payload(
    run: Run, schedule_name: str, failures: Sequence[FicheFailure], breakdown: str | None
) -> dict[str, object]:
    subject = _one_line(f"Automation {schedule_name} - {run.status.upper()}")
    text = (
        _breakdown_text(run, breakdown) if breakdown is not None else _summary_text(run, failures)
    )
    return {"subject": subject, "text": text}


def _summary_text(run: Run, failures: Sequence[FicheFailure]) -> str:
    lines = [
        f"Automation run {run.id} ended: {run.status}.",
        "",
        "Summary:",
        f"- Total Fiches: {run.total_fiches}",
        f"- Successful: {run.successful_fiches}",
        f"- Failed: {run.failed_fiches}",
        f"- Ignored: {run.ignored_fiches}",
        f"- Transcriptions: {run.transcriptions_run}",
        f"- Audits: {run.audits_run}",
        f"- Duration: {duration_seconds(run)}s",
    ]
    if failures:
        named = failures[:MAX_FAILURES]
        lines += [
            "",
            "Failures:",
            *(f"- {failure.fiche_id}: {_one_line(failure.error)}" for failure in named),
        ]
        if run.failed_fiches > len(named):
            lines.append(f"- and {run.failed_fiches - len(named)} more")
    return "\n".join([*lines, *_unread_lines(run)]) + "\n"


def _unread_lines(run: Run) -> list[str]:
    days = failed_days(run)[:MAX_FAILURES]
    message = [f"- {day['date']}: {_one_line(str(day['error']))}" for day in days]
    return ["", "Days that could not be read:", *message] if message else []


def _breakdown_text(run: Run, breakdown: str) -> str:
    verb = "was cancelled" if run.status is RunStatus.CANCELLED else "failed"
    lines = [
        f"Automation run {run.id} {verb} after {duration_seconds(run)}s.",
        "",
        f"Error: {breakdown}",
    ]
    return "\n".join([*lines, *_unread_lines(run)]) + "\n"


def duration_seconds(run: Run) -> int:
    return (run.duration_ms or 0) // 1000


def webhook_headers(
    notification: Notification, body: bytes, secret: str | None, unix_seconds: int
) -> dict[str, str]:
    is_breakdown = "error" in notification.payload
    ended = notification.payload["status"] if is_breakdown else "completed"
    return signed_headers(f"automation.run.{ended}", notification.key, body, secret, unix_seconds)


def _one_line(text: str) -> str:
    return " ".join(text.split())
