"""One recording with what was said in it."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.tables import FicheCache, RecordingRow
from automation_pipeline.transcription.tables import ChunkRow

Document = dict[str, object]


def recording_document(session: Session, fiche_id: str, call_id: str) -> Document:
    """NotFoundError says whether the recording, its transcript or only the words are missing. Words are kept as chunks,
    never one by one."""
    row = session.scalar(
        select(RecordingRow)
        .join(FicheCache, FicheCache.id == RecordingRow.fiche_cache_id)
        .where(FicheCache.fiche_id == fiche_id, RecordingRow.call_id == call_id)
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
            "text": _text(session, row),
            "language_code": row.transcription_language_code,
            "language_probability": row.transcription_language_probability,
            "words": [],
        },
    }


def _text(session: Session, row: RecordingRow) -> str:
    """As the provider gave it, else as its chunks have it."""
    if row.transcription_text:
        return row.transcription_text
    chunks = select(ChunkRow.full_text).where(ChunkRow.recording_id == row.id).order_by(ChunkRow.chunk_index)
    said = "\n".join(session.scalars(chunks))
    if not said and row.transcription_id is None:
        raise NotFoundError("Transcription data not found in DB")
    return said
