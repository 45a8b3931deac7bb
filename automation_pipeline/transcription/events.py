"""Events and log entries of transcription runs. None contains the address of a recording."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from automation_pipeline.core.clock import iso
from automation_pipeline.core.events import Event, WorkflowLogEntry
from automation_pipeline.transcription.models import (
    TranscriptionPlan,
    TranscriptionPriority,
    TranscriptionSummary,
)

PRODUCER = "transcription"
TENANT = "main"
NOT_FOUND = "Fiche not found (404)"


def _event(run_id: str, key: str, name: str, at: datetime, payload: Mapping[str, object]) -> Event:
    return Event(TENANT, key, name, PRODUCER, run_id, at, {**payload, "run_id": run_id})


def status_check(run_id: str, fiche_id: str, plan: TranscriptionPlan, at: datetime) -> Event:
    needed = plan.total - plan.already_transcribed
    return _event(run_id, f"{run_id}:status_check", "transcription.status_check", at, {
        "fiche_id": fiche_id, "total_recordings": plan.total, "already_transcribed": plan.already_transcribed,
        "needs_transcription": needed, "is_complete": needed == 0, "status": "checked",
    })  # fmt: skip


def started(
    run_id: str,
    fiche_id: str,
    plan: TranscriptionPlan,
    priority: TranscriptionPriority,
    at: datetime,
) -> Event:
    return _event(run_id, f"{run_id}:started", "transcription.started", at, {
        "fiche_id": fiche_id, "total_recordings": plan.total, "priority": priority,
        "started_at": iso(at), "status": "started",
    })  # fmt: skip


def recording(
    phase: str,
    run_id: str,
    fiche_id: str,
    call_id: str,
    position: tuple[int, int],
    at: datetime,
    **details: object,
) -> Event:
    """`phase` is started, completed or failed; `position` is the index and the total."""
    status = "processing" if phase == "started" else phase
    key = f"{run_id}:{call_id}:{phase}" + (
        f":{details.pop('attempt')}" if "attempt" in details else ""
    )
    return _event(run_id, key, f"transcription.recording_{phase}", at, {
        "fiche_id": fiche_id, "call_id": call_id, "recording_index": position[0], "total_to_transcribe": position[1],
        **details, "status": status,
    })  # fmt: skip


def recordings_failed(
    run_id: str,
    fiche_id: str,
    calls: Sequence[tuple[str, tuple[int, int]]],
    error: str,
    at: datetime,
) -> list[Event]:
    return [
        recording("failed", run_id, fiche_id, call, position, at, error=error)
        for call, position in calls
    ]


def progress(summary: TranscriptionSummary, at: datetime) -> Event:
    key = f"{summary.run_id}:progress:{summary.processed}"
    return _event(summary.run_id, key, "transcription.progress", at, {
        "fiche_id": summary.fiche_id, "total_recordings": summary.total, "transcribed": summary.transcribed,
        "pending": summary.total - summary.transcribed, "failed": summary.failed,
        "progress_percentage": summary.percentage, "status": "in_progress",
    })  # fmt: skip


def completed(
    summary: TranscriptionSummary, started_at: datetime, at: datetime
) -> tuple[Event, Event]:
    """Return the realtime event and the domain event of a run that ended."""
    seconds = max(0.0, (at - started_at).total_seconds())
    shown = _event(summary.run_id, f"{summary.run_id}:completed", "transcription.completed", at, {
        "fiche_id": summary.fiche_id, "total_recordings": summary.total, "transcribed": summary.transcribed,
        "failed": summary.failed, "duration_seconds": round(max(seconds, 0.0), 3), "completed_at": iso(at),
        "status": "completed",
    })  # fmt: skip
    return shown, fiche_transcribed(summary, round(seconds * 1000), at)


def failed(summary: TranscriptionSummary, error: str, at: datetime) -> tuple[Event, Event]:
    shown = _event(summary.run_id, f"{summary.run_id}:failed", "transcription.failed", at, {
        "fiche_id": summary.fiche_id, "error": error, "failed_at": iso(at), "status": "failed",
        "partial_results": {
            "total": summary.total, "transcribed": summary.transcribed, "failed": summary.failed,
        },
    })  # fmt: skip
    return shown, fiche_transcribed(summary, 0, at)


def fiche_transcribed(summary: TranscriptionSummary, duration_ms: int, at: datetime) -> Event:
    return _event(summary.run_id, f"fiche-transcribed-{summary.run_id}", "fiche/transcribed", at, {
        "fiche_id": summary.fiche_id, "transcribed_count": summary.new, "cached_count": summary.cached,
        "failed_count": summary.failed, "duration_ms": duration_ms,
    })  # fmt: skip


def run_note(
    summary: TranscriptionSummary,
    message: str,
    *,
    level: str = "info",
    data: Mapping[str, object] | None = None,
) -> WorkflowLogEntry:
    return fiche_note(summary.run_id, summary.fiche_id, message, level=level, data=data)


def fiche_note(
    run_id: str,
    fiche_id: str,
    message: str,
    *,
    level: str = "info",
    data: Mapping[str, object] | None = None,
) -> WorkflowLogEntry:
    return WorkflowLogEntry(
        "transcription", "fiche", fiche_id, run_id, message, level=level, data=data or {}
    )
