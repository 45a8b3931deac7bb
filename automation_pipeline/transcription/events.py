"""Events and log entries of transcription runs. None contains the address of a recording."""

from collections.abc import Mapping
from datetime import datetime

from automation_pipeline.core.clock import iso
from automation_pipeline.core.events import Event, WorkflowLogEntry
from automation_pipeline.transcription.models import TranscriptionPriority, TranscriptionSummary

NOT_FOUND = "Fiche not found (404)"


def _event(run_id: str, key: str, name: str, at: datetime, payload: Mapping[str, object]) -> Event:
    return Event("main", key, name, "transcription", run_id, at, {**payload, "run_id": run_id})


def planned(
    run: TranscriptionSummary, priority: TranscriptionPriority, at: datetime
) -> tuple[Event, Event]:
    """The status check and the start of a run that has just got its plan."""
    checked = _event(run.run_id, f"{run.run_id}:status_check", "transcription.status_check", at, {
        "fiche_id": run.fiche_id, "total_recordings": run.total, "already_transcribed": run.already_transcribed,
        "needs_transcription": run.target_total, "is_complete": run.target_total == 0, "status": "checked",
    })  # fmt: skip
    started = _event(run.run_id, f"{run.run_id}:started", "transcription.started", at, {
        "fiche_id": run.fiche_id, "total_recordings": run.total, "priority": priority,
        "started_at": iso(at), "status": "started",
    })  # fmt: skip
    return checked, started


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
    return _event(run_id, f"{run_id}:{call_id}:{phase}", f"transcription.recording_{phase}", at, {
        "fiche_id": fiche_id, "call_id": call_id, "recording_index": position[0], "total_to_transcribe": position[1],
        **details, "status": "processing" if phase == "started" else phase,
    })  # fmt: skip


def progress(run: TranscriptionSummary, at: datetime) -> Event:
    return _event(run.run_id, f"{run.run_id}:progress:{run.processed}", "transcription.progress", at, {
        "fiche_id": run.fiche_id, "total_recordings": run.total, "transcribed": run.transcribed,
        "pending": run.total - run.transcribed, "failed": run.failed,
        "progress_percentage": run.percentage, "status": "in_progress",
    })  # fmt: skip


def completed(run: TranscriptionSummary, at: datetime) -> tuple[Event, Event]:
    """Return the realtime event and the domain event of a run that ended."""
    seconds = max(0.0, (at - (run.started_at or at)).total_seconds())
    shown = _event(run.run_id, f"{run.run_id}:completed", "transcription.completed", at, {
        "fiche_id": run.fiche_id, "total_recordings": run.total, "transcribed": run.transcribed,
        "failed": run.failed, "duration_seconds": round(seconds, 3), "completed_at": iso(at),
        "status": "completed",
    })  # fmt: skip
    return shown, fiche_transcribed(run, round(seconds * 1000), at)


def failed(run: TranscriptionSummary, at: datetime) -> tuple[Event, Event]:
    shown = _event(run.run_id, f"{run.run_id}:failed", "transcription.failed", at, {
        "fiche_id": run.fiche_id, "error": run.error, "failed_at": iso(at), "status": "failed",
        "partial_results": {"total": run.total, "transcribed": run.transcribed, "failed": run.failed},
    })  # fmt: skip
    return shown, fiche_transcribed(run, 0, at)


def fiche_transcribed(run: TranscriptionSummary, duration_ms: int, at: datetime) -> Event:
    return _event(run.run_id, f"fiche-transcribed-{run.run_id}", "fiche/transcribed", at, {
        "fiche_id": run.fiche_id, "transcribed_count": run.new, "cached_count": run.cached,
        "failed_count": run.failed, "duration_ms": duration_ms,
    })  # fmt: skip


def fiche_note(
    run_id: str, fiche_id: str, message: str, *, level: str = "info", **data: object
) -> WorkflowLogEntry:
    return WorkflowLogEntry(
        "transcription", "fiche", fiche_id, run_id, message, level=level, data=data
    )
