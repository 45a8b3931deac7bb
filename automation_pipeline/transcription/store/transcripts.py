"""Writing a transcript: its chunks and the recording's own columns, in one go."""

from collections.abc import Sequence

from sqlalchemy import delete, insert, update
from sqlalchemy.orm import Session

from automation_pipeline.fiches.tables import RecordingRow
from automation_pipeline.storage.instants import database_now
from automation_pipeline.transcription.domain.transcript import Chunk, Transcript
from automation_pipeline.transcription.tables import ChunkRow


def save_transcript(session: Session, recording_id: int, transcript: Transcript, chunks: Sequence[Chunk]) -> None:
    """Replaces an earlier one. A call in which nothing was said has a transcript without chunks."""
    session.execute(delete(ChunkRow).where(ChunkRow.recording_id == recording_id))
    if chunks:
        session.execute(insert(ChunkRow), [_row(recording_id, chunk) for chunk in chunks])
    session.execute(
        update(RecordingRow)
        .where(RecordingRow.id == recording_id)
        .values(
            has_transcription=True,
            transcription_id=transcript.transcription_id,
            transcription_text=transcript.text or None,
            transcription_language_code=transcript.language_code,
            transcription_language_probability=transcript.language_probability,
            transcribed_at=database_now(),
        )
        .execution_options(synchronize_session=False)
    )


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
