"""Tables of transcription. Unique indexes allow one live run per fiche and one live task per
recording."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.types import BigId, Table, TextList, UtcDateTime

_LIVE_RUN = text("status = 'running'")
_WORKING = text("state = 'working'")
_LIVE_TASK = text("state IN ('waiting', 'working')")


class TranscriptionRunRow(Table):
    """One run over the recordings of a fiche, with its counters and its end."""

    __tablename__ = "transcription_runs"
    __table_args__ = (
        CheckConstraint("status IN ('running', 'completed', 'failed')", name="status"),
        Index(
            "uq_transcription_runs_live_fiche",
            "fiche_id",
            unique=True,
            postgresql_where=_LIVE_RUN,
            sqlite_where=_LIVE_RUN,
        ),
        Index(None, "fiche_id", "started_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    fiche_id: Mapped[str]
    priority: Mapped[str]
    status: Mapped[str]
    dagster_run_id: Mapped[str | None]
    total_recordings: Mapped[int]
    already_transcribed: Mapped[int]
    target_total: Mapped[int]
    processed: Mapped[int]
    cached: Mapped[int]
    failed: Mapped[int]
    error: Mapped[str | None]
    # Older transcripts are replaced.
    renew_before: Mapped[datetime | None] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    touched_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class TranscriptionTaskRow(Table):
    """One recording of a run. A claim lasts until `leased_until`; a later claim has a higher `token`."""

    __tablename__ = "transcription_tasks"
    __table_args__ = (
        UniqueConstraint("run_id", "call_id"),
        CheckConstraint(
            "state IN ('waiting', 'working', 'done', 'cached', 'failed')", name="state"
        ),
        Index(
            "uq_transcription_tasks_live_recording",
            "recording_id",
            unique=True,
            postgresql_where=_LIVE_TASK,
            sqlite_where=_LIVE_TASK,
        ),
        Index(
            "ix_transcription_tasks_working",
            "fiche_id",
            postgresql_where=_WORKING,
            sqlite_where=_WORKING,
        ),
        Index(
            "ix_transcription_tasks_live",
            "urgency",
            "id",
            postgresql_where=_LIVE_TASK,
            sqlite_where=_LIVE_TASK,
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("transcription_runs.id", ondelete="CASCADE"))
    recording_id: Mapped[int] = mapped_column(ForeignKey("recordings.id", ondelete="CASCADE"))
    fiche_id: Mapped[str]
    call_id: Mapped[str]
    recording_index: Mapped[int]
    urgency: Mapped[int]
    state: Mapped[str]
    attempts: Mapped[int]
    audio_failures: Mapped[int]
    available_at: Mapped[datetime] = mapped_column(UtcDateTime)
    owner: Mapped[str | None]
    token: Mapped[int] = mapped_column(BigInteger)
    leased_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    error: Mapped[str | None]
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class ChunkRow(Table):
    """Ten messages of a transcript. Audits read chunks and cite them by `chunk_index`, from 0."""

    __tablename__ = "recording_transcription_chunks"
    __table_args__ = (UniqueConstraint("recording_id", "chunk_index"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    recording_id: Mapped[int] = mapped_column(ForeignKey("recordings.id", ondelete="CASCADE"))
    chunk_index: Mapped[int]
    start_timestamp: Mapped[float]
    end_timestamp: Mapped[float]
    message_count: Mapped[int]
    speakers: Mapped[Sequence[str]] = mapped_column(TextList)
    full_text: Mapped[str]
