"""Queries for readers of recordings: a transcript, the status of a fiche, its log entries."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field, StringConstraints, model_validator
from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.events import LogLevel
from automation_pipeline.core.json_model import Count, JsonModel, Moment, begin_of, end_of, parse
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.history import LogPage, log_lines
from automation_pipeline.storage.statements import database_time
from automation_pipeline.transcription.models import TaskState, TranscriptionStatus
from automation_pipeline.transcription.tables import (
    ChunkRow,
    TranscriptionRunRow,
    TranscriptionTaskRow,
)

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


def transcription_status(session: Session, fiche_id: str) -> Document:
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


def _recording_status(row: CallRecordingRow) -> Document:
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


def _last_run(session: Session, fiche_id: str) -> Document | None:
    row = session.scalar(
        select(TranscriptionRunRow)
        .where(TranscriptionRunRow.fiche_id == fiche_id)
        .order_by(TranscriptionRunRow.started_at.desc(), TranscriptionRunRow.id)
        .limit(1)
    )
    if row is None:
        return None
    tasks = session.scalars(
        select(TranscriptionTaskRow)
        .where(TranscriptionTaskRow.run_id == row.id)
        .order_by(TranscriptionTaskRow.recording_index)
    ).all()
    now = database_time(session)
    if row.status == TranscriptionStatus.COMPLETED:
        state = "finished with failures" if row.failed else "finished"
    else:
        state = "processing" if row.status == TranscriptionStatus.RUNNING else "failed"
    return {
        "id": row.id,
        "state": state,
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


def _task_status(task: TranscriptionTaskRow, now: datetime) -> Document:
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


RunId = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)]


class LogQuery(JsonModel):
    """`run_id` and `trace_id` are synonyms: the run that wrote the entry."""

    model_config = ConfigDict(alias_generator=None)

    run_id: RunId | None = None
    trace_id: RunId | None = None
    level: LogLevel | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    offset: Count = 0

    @model_validator(mode="before")
    @classmethod
    def _ignore_empty(cls, given: Mapping[str, object]) -> Mapping[str, object]:
        return {name: value for name, value in given.items() if value not in ("", None)}

    @property
    def trace(self) -> str | None:
        return self.run_id or self.trace_id


def parse_log_query(given: Mapping[str, object]) -> LogQuery:
    """Raises InvalidInputError with one error per invalid parameter."""
    try:
        return parse(LogQuery, given, "The logs cannot be shown")
    except InvalidInputError as error:
        moments = [field for field, _ in error.fields if field in {"since", "until"}]
        if not moments:
            raise
        raise InvalidInputError(
            f"Invalid {moments[0]} (expected ISO 8601 date-time)", error.fields
        ) from None


def transcription_logs(
    session: Session, fiche_id: str, query: LogQuery, zone: ZoneInfo
) -> tuple[list[Document], int]:
    """A page of log entries, oldest first, and their total number.

    Raises NotFoundError for a fiche that is not mirrored and has no entries.
    """
    of_fiche = LogPage(workflow="transcription", entity=("fiche", fiche_id), limit=1)
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
    if total == 0:
        mirrored = select(FicheCacheRow.id).where(FicheCacheRow.fiche_id == fiche_id)
        if session.scalar(mirrored) is None and log_lines(session, of_fiche)[1] == 0:
            raise NotFoundError(f"Fiche {fiche_id} not found")
    return lines, total
