"""The messages of a run: events, notifications by webhook and e-mail, and workflow log entries."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from automation_pipeline.automation.models.runs import (
    FicheFailure,
    LedgerTally,
    Phase,
    Run,
    RunStatus,
    failed_days,
)
from automation_pipeline.automation.models.schedules import EmptyReason, FicheSelection, Schedule
from automation_pipeline.core.clock import iso
from automation_pipeline.core.events import Event, WorkflowLogEntry
from automation_pipeline.core.webhooks import signed_headers

PRODUCER = "automation"
TENANT = "main"
MOST_GROUPES = 10

_SUFFIXES = {
    EmptyReason.NO_FICHES_MANUAL: "-no-fiches",
    EmptyReason.NO_DATES: "-no-dates",
    EmptyReason.NO_FICHES_FOUND: "-no-fiches-found",
}


@dataclass(frozen=True)
class ProgressUpdate:
    phase: Phase
    tally: LedgerTally
    audits: int


def job_id(run_id: int) -> str:
    """The name of the run's channel, and its trace id in logs."""
    return f"automation-run-{run_id}"


def started(run: Run, at: datetime) -> Event:
    payload = {"due_at": run.due_at and iso(run.due_at), "status": RunStatus.RUNNING}
    return _realtime_event(run, "started", "started", at, payload)


def selection(run: Run, chosen: FicheSelection, total_fiches: int, at: datetime) -> Event:
    payload = {
        "mode": chosen.mode,
        "dateRange": chosen.date_range,
        **({"groupes": list(chosen.groupes)} if len(chosen.groupes) <= MOST_GROUPES else {}),
        "groupes_count": len(chosen.groupes),
        "onlyWithRecordings": chosen.only_with_recordings,
        "onlyUnaudited": chosen.only_unaudited,
        "maxFiches": chosen.max_fiches,
        "maxRecordingsPerFiche": chosen.max_recordings_per_fiche,
        "useRlm": chosen.use_rlm,
        "total_fiches": total_fiches,
    }
    return _realtime_event(run, "selection", "selection", at, payload)


def progress(run: Run, update: ProgressUpdate, at: datetime) -> Event:
    """Two calls with the same progress give the same event."""
    tally = update.tally
    done = tally.successful + tally.failed + tally.ignored
    payload = {
        "selected_fiches": tally.selected,
        "successful": tally.successful,
        "failed": tally.failed,
        "ignored": tally.ignored,
        "audits": update.audits,
        "current_phase": update.phase,
        "progress_percentage": round(100 * done / tally.selected) if tally.selected else 100,
        "status": RunStatus.RUNNING,
    }
    numbers = (tally.successful, tally.failed, tally.ignored, update.audits)
    return _realtime_event(
        run, "progress", f"progress-{update.phase}-{'-'.join(map(str, numbers))}", at, payload
    )


def completed(run: Run, at: datetime, reason: EmptyReason | None = None) -> tuple[Event, Event]:
    """One event for realtime clients, and one for subscribers that wait for the run. With a reason,
    the run had no fiches."""
    totals = {
        "status": run.status,
        "total_fiches": run.total_fiches,
        "successful_fiches": run.successful_fiches,
        "failed_fiches": run.failed_fiches,
    }
    duration = {"duration_ms": run.duration_ms or 0}
    details = {
        "ignored_fiches": run.ignored_fiches,
        "transcriptions_run": run.transcriptions_run,
        "audits_run": run.audits_run,
        **duration,
    }
    realtime = _realtime_event(
        run, "completed", "completed", at, {**totals, **({"reason": reason} if reason else details)}
    )
    key = f"automation-completed-{run.id}{_SUFFIXES[reason] if reason else ''}"
    return realtime, _event(
        run, key, "automation/completed", at, {**_about(run), **totals, **duration}
    )


def aborted(run: Run, error: str, at: datetime) -> tuple[Event, Event]:
    """For a run that failed as a whole or was cancelled: the event names carry its status."""
    name = run.status.value
    realtime = _realtime_event(
        run, name, name, at, {"status": name, "error": error, "duration_ms": run.duration_ms or 0}
    )
    payload = {**_about(run), "error": error}
    return realtime, _event(run, f"automation-{name}-{run.id}", f"automation/{name}", at, payload)


def _realtime_event(
    run: Run, name: str, key: str, at: datetime, payload: Mapping[str, object]
) -> Event:
    channel = job_id(run.id)
    about = {"job_id": channel, **_about(run)}
    return _event(run, f"{channel}-{key}", f"automation.run.{name}", at, {**about, **payload})


def _event(run: Run, key: str, name: str, at: datetime, payload: Mapping[str, object]) -> Event:
    return Event(TENANT, key, name, PRODUCER, job_id(run.id), at, payload)


def _about(run: Run) -> dict[str, object]:
    return {"schedule_id": str(run.schedule_id), "run_id": str(run.id)}


def run_note(
    run: Run, message: str, *, level: str = "info", data: Mapping[str, object] | None = None
) -> WorkflowLogEntry:
    return WorkflowLogEntry(
        "automation",
        "automation_run",
        str(run.id),
        job_id(run.id),
        message,
        level=level,
        dagster_run_id=run.dagster_run_id,
        data=data or {},
    )


# A message lists the first failures and counts all of them; the run lists the others.
MAX_FAILURES = 100

NOTIFICATION_EVENT = "automation/notification"


class NotificationChannel(StrEnum):
    WEBHOOK = "webhook"
    EMAIL = "email"


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


def notifications_of(
    run: Run,
    schedule: Schedule,
    failures: Sequence[FicheFailure],
    breakdown: str | None,
) -> list[Notification]:
    """One notification per receiver, if the schedule requests them for this status. `failures` are
    the first failures; with a breakdown, the message has no counts."""
    is_complete = run.status is RunStatus.COMPLETED
    if not (schedule.notify_on_complete if is_complete else schedule.notify_on_error):
        return []
    messages: list[Notification] = []
    if url := schedule.webhook_url:
        payload = _webhook_payload(run, schedule.name, failures, breakdown)
        messages.append(Notification(run.id, NotificationChannel.WEBHOOK, url, payload))
    email = {
        "subject": _one_line(f"Automation {schedule.name} - {run.status.upper()}"),
        "text": _email_text(run, failures, breakdown),
    }
    messages += [
        Notification(run.id, NotificationChannel.EMAIL, receiver, email)
        for receiver in dict.fromkeys(schedule.notify_emails)
    ]
    return messages


def _webhook_payload(
    run: Run, schedule_name: str, failures: Sequence[FicheFailure], breakdown: str | None
) -> dict[str, object]:
    payload: dict[str, object] = {
        "schedule_id": str(run.schedule_id),
        "schedule_name": schedule_name,
        "run_id": str(run.id),
        "status": run.status.value,
        "duration_seconds": _duration_seconds(run),
    }
    if breakdown is not None:
        payload["error"] = breakdown
    else:
        payload |= {
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
        }
    if days := failed_days(run):
        payload["failed_days"] = days[:MAX_FAILURES]
    return payload


def _email_text(run: Run, failures: Sequence[FicheFailure], breakdown: str | None) -> str:
    if breakdown is not None:
        verb = "was cancelled" if run.status is RunStatus.CANCELLED else "failed"
        lines = [
            f"Automation run {run.id} {verb} after {_duration_seconds(run)}s.",
            "",
            f"Error: {breakdown}",
        ]
    else:
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
            f"- Duration: {_duration_seconds(run)}s",
        ]
    if failures:
        named = failures[:MAX_FAILURES]
        lines += ["", "Failures:"]
        lines += [f"- {failure.fiche_id}: {_one_line(failure.error)}" for failure in named]
        if run.failed_fiches > len(named):
            lines.append(f"- and {run.failed_fiches - len(named)} more")
    if days := failed_days(run):
        lines += ["", "Days that could not be read:"]
        lines += [f"- {day['date']}: {_one_line(str(day['error']))}" for day in days[:MAX_FAILURES]]
    return "\n".join(lines) + "\n"


def _duration_seconds(run: Run) -> int:
    return (run.duration_ms or 0) // 1000


def notification(message: Notification, notification_id: int, at: datetime) -> Event:
    """The event that makes the relay deliver the stored message."""
    payload = {"notification_id": notification_id}
    return Event(
        TENANT, message.key, NOTIFICATION_EVENT, PRODUCER, job_id(message.run_id), at, payload
    )


def webhook_headers(
    notification: Notification, body: bytes, secret: str | None, unix_seconds: int
) -> dict[str, str]:
    is_breakdown = "error" in notification.payload
    ended = notification.payload["status"] if is_breakdown else "completed"
    return signed_headers(f"automation.run.{ended}", notification.key, body, secret, unix_seconds)


def _one_line(text: str) -> str:
    return " ".join(text.split())
