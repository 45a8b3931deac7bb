"""Writing a transcript: its chunks and the recording's own columns, in one go."""

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, insert, update
from sqlalchemy.orm import Session

from automation_pipeline.fiches.tables import RecordingRow
from automation_pipeline.storage.instants import database_now
from automation_pipeline.storage.prepared import execute, execute_each
from automation_pipeline.transcription.domain.transcript import Chunk, Transcript
from automation_pipeline.transcription.tables import ChunkRow

_FORGET = delete(ChunkRow).where(ChunkRow.recording_id == bindparam("of_recording"))
_ADD = insert(ChunkRow)
_NOTE = (
    update(RecordingRow)
    .where(RecordingRow.id == bindparam("of_recording"))
    .values(
        has_transcription=True,
        transcription_id=bindparam("heard_id"),
        transcription_text=bindparam("heard_text"),
        transcription_language_code=bindparam("language"),
        transcription_language_probability=bindparam("probability"),
        transcribed_at=database_now(),
    )
)


def save_transcript(session: Session, recording_id: int, transcript: Transcript, chunks: Sequence[Chunk]) -> None:
    """Replaces an earlier one. A call in which nothing was said has a transcript without chunks."""
    execute(session, _FORGET, {"of_recording": recording_id})
    execute_each(session, _ADD, [_row(recording_id, chunk) for chunk in chunks])
    heard = {
        "of_recording": recording_id,
        "heard_id": transcript.transcription_id,
        "heard_text": transcript.text or None,
        "language": transcript.language_code,
        "probability": transcript.language_probability,
    }
    execute(session, _NOTE, heard)


def _row(recording_id: int, chunk: Chunk) -> dict[str, object]:
    return {
        "recording_id": recording_id,
        "chunk_index": chunk.index,
        "start_timestamp": chunk.start,
        "end_timestamp": chunk.end,
        "message_count": chunk.message_count,
        "speakers": list(chunk.speakers),
        "full_text": chunk.full_text,
    }
