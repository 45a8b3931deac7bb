"""How a fiche stands: what is transcribed by now, and what its last run did or is doing."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.instants import iso
from automation_pipeline.fiches.tables import FicheCache, RecordingRow
from automation_pipeline.storage.instants import database_time
from automation_pipeline.transcription.domain.run import RunStatus, TaskState
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow

Document = Mapping[str, object]


def transcription_status(session: Session, fiche_id: str) -> Document:
    """The fiche's recordings as they are now, and its last run as it was planned: where they differ, both are told. A
    fiche that the CRM never gave has no recordings yet, but the run that could not fetch it."""
    fiche = session.scalar(select(FicheCache.id).where(FicheCache.fiche_id == fiche_id))
    run = _last_run(session, fiche_id)
    if fiche is None and run is None:
        raise NotFoundError(f"Fiche {fiche_id} not found")
    recordings = session.scalars(
        select(RecordingRow)
        .where(RecordingRow.fiche_cache_id == fiche, RecordingRow.vanished_at.is_(None))
        .order_by(RecordingRow.start_time, RecordingRow.call_id)
    ).all()
    done = sum(recording.has_transcription for recording in recordings)
    return {
        "ficheId": fiche_id,
        "total": len(recordings),
        "transcribed": done,
        "pending": len(recordings) - done,
        "percentage": round(100 * done / len(recordings)) if recordings else 0 if fiche is None else 100,
        "recordings": [_recording(recording) for recording in recordings],
        "run": run,
    }


def _recording(row: RecordingRow) -> Document:
    return {
        "callId": row.call_id,
        "hasTranscription": row.has_transcription,
        "transcriptionId": row.transcription_id,
        "transcribedAt": _iso(row.transcribed_at),
        "recordingDate": row.recording_date,
        "recordingTime": row.recording_time,
        "durationSeconds": row.duration_seconds,
        "hasUrl": bool(row.recording_url.strip()),
    }


def _last_run(session: Session, fiche_id: str) -> Document | None:
    row = session.scalars(
        select(TranscriptionRunRow)
        .where(TranscriptionRunRow.fiche_id == fiche_id)
        .order_by(TranscriptionRunRow.started_at.desc(), TranscriptionRunRow.id)
        .limit(1)
    ).first()
    if row is None:
        return None
    tasks = session.scalars(
        select(TranscriptionTaskRow)
        .where(TranscriptionTaskRow.run_id == row.id)
        .order_by(TranscriptionTaskRow.recording_index)
    ).all()
    now = database_time(session)
    return {
        "id": row.id,
        "state": _state(row),
        "priority": row.priority,
        "targetTotal": row.target_total,
        "processed": row.processed,
        "cached": row.cached,
        "failed": row.failed,
        "error": row.error,
        "startedAt": _iso(row.started_at),
        "finishedAt": _iso(row.finished_at),
        "lastSignOfLifeAt": _iso(row.touched_at),
        "tasks": [_task(task, now) for task in tasks],
    }


def _state(row: TranscriptionRunRow) -> str:
    if row.status == RunStatus.RUNNING:
        return "processing"
    if row.status == RunStatus.FAILED:
        return "failed"
    return "finished with failures" if row.failed else "finished"


def _task(task: TranscriptionTaskRow, now: datetime) -> Document:
    """Who holds it and for how long, or when it may be tried again and why."""
    held = task.state == TaskState.WORKING and task.leased_until is not None
    waits = task.state == TaskState.WAITING and task.available_at > now
    return {
        "callId": task.call_id,
        "state": task.state,
        "attempts": task.attempts,
        "error": task.error,
        "owner": task.owner,
        "token": task.token,
        "secondsLeft": round((task.leased_until - now).total_seconds(), 1) if held and task.leased_until else None,
        "againInSeconds": round((task.available_at - now).total_seconds(), 1) if waits else None,
    }


def _iso(at: datetime | None) -> str | None:
    return None if at is None else iso(at)
