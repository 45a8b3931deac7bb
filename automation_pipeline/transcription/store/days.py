"""The recordings of the fiches sold on a day."""

from datetime import date
from typing import Any, TypeVar

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from automation_pipeline.fiches.tables import FicheCache, RecordingRow
from automation_pipeline.transcription.domain.day import DayTranscripts
from automation_pipeline.transcription.domain.run import TaskState
from automation_pipeline.transcription.tables import TranscriptionTaskRow

Query = TypeVar("Query", bound=Select[Any])  # any columns


def fiches_to_transcribe(session: Session, day: date) -> list[str]:
    """Fiches with a recording that has audio and no transcript."""
    lacks = (RecordingRow.has_transcription.is_(False), RecordingRow.recording_url != "")
    query = _of_day(select(FicheCache.fiche_id), day).where(*lacks).distinct().order_by(FicheCache.fiche_id)
    return list(session.scalars(query))


def transcripts_of(session: Session, day: date) -> DayTranscripts:
    done = func.count().filter(RecordingRow.has_transcription)
    seconds = func.coalesce(func.sum(RecordingRow.duration_seconds).filter(RecordingRow.has_transcription), 0)
    recordings, transcribed, length = session.execute(_of_day(select(func.count(), done, seconds), day)).tuples().one()
    return DayTranscripts(recordings, transcribed, round(float(length) / 60, 1), _failures(session, day))


def _failures(session: Session, day: date) -> dict[str, int]:
    """Of recordings that still lack a transcript: why they were given up last."""
    last = (
        select(func.max(TranscriptionTaskRow.id))
        .where(TranscriptionTaskRow.state == TaskState.FAILED)
        .group_by(TranscriptionTaskRow.recording_id)
    )
    query = (
        _of_day(select(TranscriptionTaskRow.error, func.count()), day)
        .join(TranscriptionTaskRow, TranscriptionTaskRow.recording_id == RecordingRow.id)
        .where(RecordingRow.has_transcription.is_(False), TranscriptionTaskRow.id.in_(last))
        .group_by(TranscriptionTaskRow.error)
    )
    return {error or "unknown": count for error, count in session.execute(query).tuples()}


def _of_day(query: Query, day: date) -> Query:
    return (
        query.select_from(RecordingRow)
        .join(FicheCache, FicheCache.id == RecordingRow.fiche_cache_id)
        .where(FicheCache.sales_date == day.isoformat(), RecordingRow.vanished_at.is_(None))
    )
