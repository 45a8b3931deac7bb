"""The recordings of a fiche as people read them: whole rows, the oldest first."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.access import Reach
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.instants import iso
from automation_pipeline.fiches.domain.fiche_status import Document
from automation_pipeline.fiches.store.visibility import within
from automation_pipeline.fiches.tables import FicheCache, RecordingRow


def recordings_of(session: Session, fiche_id: str, reach: Reach) -> list[Document]:
    """Those that the CRM no longer names too, with the instant at which that was seen."""
    fiche = session.scalar(select(FicheCache.id).where(FicheCache.fiche_id == fiche_id, within(session, reach)))
    if fiche is None:
        raise NotFoundError(f"Fiche {fiche_id} not found")
    query = select(RecordingRow).where(RecordingRow.fiche_cache_id == fiche)
    rows = session.scalars(query.order_by(RecordingRow.start_time, RecordingRow.call_id))
    return [_document(row, fiche_id) for row in rows]


def _document(row: RecordingRow, fiche_id: str) -> Document:
    return {
        "id": str(row.id),
        "ficheId": fiche_id,
        "callId": row.call_id,
        "recordingUrl": row.recording_url or None,
        "recordingDate": row.recording_date,
        "recordingTime": row.recording_time,
        "uuid": row.uuid,
        "startTime": iso(row.start_time),
        "durationSeconds": row.duration_seconds,
        "direction": row.direction,
        "fromNumber": row.from_number,
        "toNumber": row.to_number,
        "answered": row.answered,
        "vanishedAt": row.vanished_at and iso(row.vanished_at),
        "hasTranscription": row.has_transcription,
        "transcriptionId": row.transcription_id,
        "transcriptionText": row.transcription_text,
        "transcriptionLanguageCode": row.transcription_language_code,
        "transcriptionLanguageProbability": row.transcription_language_probability,
        "transcribedAt": row.transcribed_at and iso(row.transcribed_at),
    }
