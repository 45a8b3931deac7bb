"""Queries of recordings and their transcripts: save, show, status, a day's recordings, log entries."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from sqlalchemy import Select, bindparam, delete, func, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import begin_of, end_of
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.history import LogPage, log_lines
from automation_pipeline.storage.statements import database_now, database_time, insert_rows
from automation_pipeline.transcription.models import (
    Chunk,
    DayTranscripts,
    LogQuery,
    TaskState,
    Transcript,
    TranscriptionStatus,
)
from automation_pipeline.transcription.tables import (
    ChunkRow,
    TranscriptionRunRow,
    TranscriptionTaskRow,
)

_UPDATE_RECORDING = (
    update(CallRecordingRow)
    .where(CallRecordingRow.id == bindparam("of_recording"))
    .values(
        has_transcription=True,
        transcription_id=bindparam("provider_id"),
        transcription_text=bindparam("transcript_text"),
        transcription_language_code=bindparam("language"),
        transcription_language_probability=bindparam("probability"),
        transcribed_at=database_now(),
    )
)


def save_transcripts(
    session: Session, transcripts: Mapping[int, tuple[Transcript, Sequence[Chunk]]]
) -> None:
    """Save transcripts by recording, in place of earlier ones. An empty transcript has no chunks."""
    if not transcripts:
        return
    connection = session.connection()
    connection.execute(delete(ChunkRow).where(ChunkRow.recording_id.in_(list(transcripts))))
    chunks = [
        _chunk_row(recording_id, chunk)
        for recording_id, (_, of_recording) in transcripts.items()
        for chunk in of_recording
    ]
    insert_rows(session, ChunkRow, chunks)
    recordings = [
        {
            "of_recording": recording_id,
            "provider_id": transcript.transcription_id,
            "transcript_text": transcript.text or None,
            "language": transcript.language_code,
            "probability": transcript.language_probability,
        }
        for recording_id, (transcript, _) in sorted(transcripts.items())
    ]
    connection.execute(_UPDATE_RECORDING, recordings)


def _chunk_row(recording_id: int, chunk: Chunk) -> dict[str, object]:
    return {
        "recording_id": recording_id,
        "chunk_index": chunk.index,
        "start_timestamp": chunk.start,
        "end_timestamp": chunk.end,
        "message_count": chunk.message_count,
        "speakers": list(chunk.speakers),
        "full_text": chunk.full_text,
    }


Document = dict[str, object]


def recording_document(session: Session, fiche_id: str, call_id: str) -> Document:
    """The recording with its transcript; words are stored as chunks only.

    Raises NotFoundError, whose message distinguishes a missing recording, transcript and text.
    """
    row = session.scalar(
        select(CallRecordingRow)
        .join(FicheCacheRow, FicheCacheRow.id == CallRecordingRow.fiche_cache_id)
        .where(FicheCacheRow.fiche_id == fiche_id, CallRecordingRow.call_id == call_id)
    )
    if row is None:
        raise NotFoundError("Recording not found")
    if not row.has_transcription:
        raise NotFoundError("No transcription available for this recording")
    return {
        "call_id": row.call_id,
        "recording_url": row.recording_url,
        "duration_seconds": row.duration_seconds,
        "transcription_id": row.transcription_id,
        "has_transcription": row.has_transcription,
        "transcription": {
            "text": _transcript_text(session, row),
            "language_code": row.transcription_language_code,
            "language_probability": row.transcription_language_probability,
            "words": [],
        },
    }


def _transcript_text(session: Session, row: CallRecordingRow) -> str:
    """The provider's text, or else the text of the chunks."""
    if row.transcription_text:
        return row.transcription_text
    chunks = (
        select(ChunkRow.full_text)
        .where(ChunkRow.recording_id == row.id)
        .order_by(ChunkRow.chunk_index)
    )
    text = "\n".join(session.scalars(chunks))
    if not text and row.transcription_id is None:
        raise NotFoundError("Transcription data not found in DB")
    return text


StatusDocument = Mapping[str, object]


def transcription_status(session: Session, fiche_id: str) -> StatusDocument:
    """The current recordings of the fiche, and its last run as planned, which may differ.

    A fiche that was never fetched has no recordings, but may have a failed run.
    """
    fiche = session.scalar(select(FicheCacheRow.id).where(FicheCacheRow.fiche_id == fiche_id))
    run = _last_run(session, fiche_id)
    if fiche is None and run is None:
        raise NotFoundError(f"Fiche {fiche_id} not found")
    recordings = session.scalars(
        select(CallRecordingRow)
        .where(CallRecordingRow.fiche_cache_id == fiche, CallRecordingRow.vanished_at.is_(None))
        .order_by(CallRecordingRow.start_time, CallRecordingRow.call_id)
    ).all()
    done = sum(recording.has_transcription for recording in recordings)
    without_recordings = 0 if fiche is None else 100
    return {
        "ficheId": fiche_id,
        "total": len(recordings),
        "transcribed": done,
        "pending": len(recordings) - done,
        "percentage": round(100 * done / len(recordings)) if recordings else without_recordings,
        "recordings": [_recording_status(recording) for recording in recordings],
        "run": run,
    }


def _recording_status(row: CallRecordingRow) -> StatusDocument:
    return {
        "callId": row.call_id,
        "hasTranscription": row.has_transcription,
        "transcriptionId": row.transcription_id,
        "transcribedAt": row.transcribed_at and iso(row.transcribed_at),
        "recordingDate": row.recording_date,
        "recordingTime": row.recording_time,
        "durationSeconds": row.duration_seconds,
        "hasUrl": bool(row.recording_url.strip()),
    }


def _last_run(session: Session, fiche_id: str) -> StatusDocument | None:
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
        "state": _run_state(row),
        "priority": row.priority,
        "targetTotal": row.target_total,
        "processed": row.processed,
        "cached": row.cached,
        "failed": row.failed,
        "error": row.error,
        "startedAt": iso(row.started_at),
        "finishedAt": row.finished_at and iso(row.finished_at),
        "lastSignOfLifeAt": iso(row.touched_at),
        "tasks": [_task_status(task, now) for task in tasks],
    }


def _run_state(row: TranscriptionRunRow) -> str:
    if row.status == TranscriptionStatus.RUNNING:
        return "processing"
    if row.status == TranscriptionStatus.FAILED:
        return "failed"
    return "finished with failures" if row.failed else "finished"


def _task_status(task: TranscriptionTaskRow, now: datetime) -> StatusDocument:
    """One task with its claim, or its next attempt."""
    lease_end = task.leased_until if task.state == TaskState.WORKING else None
    waits = task.state == TaskState.WAITING and task.available_at > now
    return {
        "callId": task.call_id,
        "state": task.state,
        "attempts": task.attempts,
        "error": task.error,
        "owner": task.owner,
        "token": task.token,
        "secondsLeft": round((lease_end - now).total_seconds(), 1) if lease_end else None,
        "againInSeconds": round((task.available_at - now).total_seconds(), 1) if waits else None,
    }


Query = TypeVar("Query", bound=Select[Any])  # any columns


def fiches_to_transcribe(session: Session, day: date) -> list[str]:
    """Fiches with a recording that has audio and no transcript."""
    untranscribed = (
        CallRecordingRow.has_transcription.is_(False),
        CallRecordingRow.recording_url != "",
    )
    query = (
        _of_day(select(FicheCacheRow.fiche_id), day)
        .where(*untranscribed)
        .distinct()
        .order_by(FicheCacheRow.fiche_id)
    )
    return list(session.scalars(query))


def transcripts_of_day(session: Session, day: date) -> DayTranscripts:
    done = func.count().filter(CallRecordingRow.has_transcription)
    seconds = func.coalesce(
        func.sum(CallRecordingRow.duration_seconds).filter(CallRecordingRow.has_transcription), 0
    )
    recordings, transcribed, length = (
        session.execute(_of_day(select(func.count(), done, seconds), day)).tuples().one()
    )
    return DayTranscripts(
        recordings, transcribed, round(float(length) / 60, 1), _failures(session, day)
    )


def _failures(session: Session, day: date) -> dict[str, int]:
    """Count the last errors of the day's recordings that lack a transcript."""
    last = (
        select(func.max(TranscriptionTaskRow.id))
        .where(TranscriptionTaskRow.state == TaskState.FAILED)
        .group_by(TranscriptionTaskRow.recording_id)
    )
    query = (
        _of_day(select(TranscriptionTaskRow.error, func.count()), day)
        .join(TranscriptionTaskRow, TranscriptionTaskRow.recording_id == CallRecordingRow.id)
        .where(CallRecordingRow.has_transcription.is_(False), TranscriptionTaskRow.id.in_(last))
        .group_by(TranscriptionTaskRow.error)
    )
    return {error or "unknown": count for error, count in session.execute(query).tuples()}


def _of_day(query: Query, day: date) -> Query:
    return (
        query.select_from(CallRecordingRow)
        .join(FicheCacheRow, FicheCacheRow.id == CallRecordingRow.fiche_cache_id)
        .where(FicheCacheRow.sales_date == day.isoformat(), CallRecordingRow.vanished_at.is_(None))
    )


def transcription_logs(
    session: Session, fiche_id: str, query: LogQuery, zone: ZoneInfo
) -> tuple[list[Document], int]:
    """A page of log entries, oldest first, and their total number.

    Raises NotFoundError for a fiche that is not mirrored and has no entries.
    """
    of_fiche = LogPage(workflow="transcription", entity=("fiche", fiche_id))
    page = replace(
        of_fiche,
        trace_ids=(query.trace,) if query.trace else (),
        level=query.level,
        since=None if query.since is None else begin_of(query.since, zone),
        until=None if query.until is None else end_of(query.until, zone),
        limit=query.limit,
        offset=query.offset,
    )
    lines, total = log_lines(session, page)
    if total == 0 and not _is_known(session, fiche_id, of_fiche):
        raise NotFoundError(f"Fiche {fiche_id} not found")
    return lines, total


def _is_known(session: Session, fiche_id: str, of_fiche: LogPage) -> bool:
    if (
        session.scalar(select(FicheCacheRow.id).where(FicheCacheRow.fiche_id == fiche_id))
        is not None
    ):
        return True
    return log_lines(session, replace(of_fiche, limit=1))[1] > 0
