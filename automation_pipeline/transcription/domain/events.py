"""What the outside hears of a run: names and payloads for the fiche's realtime channel. No audio address in any."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from automation_pipeline.core.events import Event
from automation_pipeline.core.instants import iso
from automation_pipeline.transcription.domain.run import Plan, Priority, Standing

PRODUCER = "transcription"
TENANT = "main"
NOT_FOUND = "Fiche not found (404)"


def _event(run_id: str, key: str, name: str, at: datetime, payload: Mapping[str, object]) -> Event:
    return Event(TENANT, key, name, PRODUCER, run_id, at, {**payload, "run_id": run_id})


def status_check(run_id: str, fiche_id: str, plan: Plan, at: datetime) -> Event:
    needed = plan.total - plan.already_transcribed
    return _event(run_id, f"{run_id}:status_check", "transcription.status_check", at, {
        "fiche_id": fiche_id, "total_recordings": plan.total, "already_transcribed": plan.already_transcribed,
        "needs_transcription": needed, "is_complete": needed == 0, "status": "checked",
    })  # fmt: skip


def started(run_id: str, fiche_id: str, plan: Plan, priority: Priority, at: datetime) -> Event:
    return _event(run_id, f"{run_id}:started", "transcription.started", at, {
        "fiche_id": fiche_id, "total_recordings": plan.total, "priority": priority,
        "started_at": iso(at), "status": "started",
    })  # fmt: skip


def recording(
    what: str, run_id: str, fiche_id: str, call_id: str, place: tuple[int, int], at: datetime, **more: object
) -> Event:
    """`what` is started, completed or failed; `place` is (index, of how many)."""
    status = "processing" if what == "started" else what
    key = f"{run_id}:{call_id}:{what}" + (f":{more.pop('attempt')}" if "attempt" in more else "")
    return _event(run_id, key, f"transcription.recording_{what}", at, {
        "fiche_id": fiche_id, "call_id": call_id, "recording_index": place[0], "total_to_transcribe": place[1],
        **more, "status": status,
    })  # fmt: skip


def recordings_failed(
    run_id: str, fiche_id: str, calls: Sequence[tuple[str, tuple[int, int]]], error: str, at: datetime
) -> list[Event]:
    return [recording("failed", run_id, fiche_id, call, place, at, error=error) for call, place in calls]


def progress(standing: Standing, at: datetime) -> Event:
    key = f"{standing.run_id}:progress:{standing.processed}"
    return _event(standing.run_id, key, "transcription.progress", at, {
        "fiche_id": standing.fiche_id, "total_recordings": standing.total, "transcribed": standing.transcribed,
        "pending": standing.total - standing.transcribed, "failed": standing.failed,
        "progress_percentage": standing.percentage, "status": "in_progress",
    })  # fmt: skip


def completed(standing: Standing, started_at: datetime, at: datetime) -> tuple[Event, Event]:
    """For the screen, and for whoever waits for the fiche."""
    seconds = max(0.0, (at - started_at).total_seconds())
    shown = _event(standing.run_id, f"{standing.run_id}:completed", "transcription.completed", at, {
        "fiche_id": standing.fiche_id, "total_recordings": standing.total, "transcribed": standing.transcribed,
        "failed": standing.failed, "duration_seconds": round(max(seconds, 0.0), 3), "completed_at": iso(at),
        "status": "completed",
    })  # fmt: skip
    return shown, fiche_transcribed(standing, round(seconds * 1000), at)


def failed(standing: Standing, error: str, at: datetime) -> tuple[Event, Event]:
    shown = _event(standing.run_id, f"{standing.run_id}:failed", "transcription.failed", at, {
        "fiche_id": standing.fiche_id, "error": error, "failed_at": iso(at), "status": "failed",
        "partial_results": {
            "total": standing.total, "transcribed": standing.transcribed, "failed": standing.failed,
        },
    })  # fmt: skip
    return shown, fiche_transcribed(standing, 0, at)


def fiche_transcribed(standing: Standing, duration_ms: int, at: datetime) -> Event:
    return _event(standing.run_id, f"fiche-transcribed-{standing.run_id}", "fiche/transcribed", at, {
        "fiche_id": standing.fiche_id, "transcribed_count": standing.new, "cached_count": standing.cached,
        "failed_count": standing.failed, "duration_ms": duration_ms,
    })  # fmt: skip
