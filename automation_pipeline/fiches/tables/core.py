"""The fiche and its recordings."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, Json, JsonObject, UtcDateTime


class FicheCache(Table):
    """One fiche. `details_fetched_at` is moved by details only, so that no other write passes for a refresh.

    `not_found_until` ends the marker of a fiche that the CRM does not know; what was known before stays in place.
    """

    __tablename__ = "fiche_cache"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    fiche_id: Mapped[str] = mapped_column(unique=True)
    groupe: Mapped[str | None] = mapped_column(index=True)
    agence_nom: Mapped[str | None]
    prospect_nom: Mapped[str | None]
    prospect_prenom: Mapped[str | None]
    prospect_email: Mapped[str | None]
    prospect_tel: Mapped[str | None]
    sales_date: Mapped[str | None] = mapped_column(index=True)
    cle: Mapped[str | None]
    details_success: Mapped[bool | None]
    details_message: Mapped[str | None]
    raw_data: Mapped[JsonObject] = mapped_column(Json)
    fetched_at: Mapped[datetime] = mapped_column(UtcDateTime)
    details_fetched_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    not_found_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    last_revalidated_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)


class RecordingRow(Table):
    """One call of a fiche. An empty URL: no audio (yet). `vanished_at`: the CRM's details no longer name it."""

    __tablename__ = "recordings"
    __table_args__ = (
        UniqueConstraint("fiche_cache_id", "call_id"),
        # What waits for a transcript is few among millions. Each database finds it by the words that queries say it in.
        Index(
            "ix_recordings_untranscribed",
            "fiche_cache_id",
            postgresql_where=text("has_transcription IS false AND vanished_at IS NULL"),
            sqlite_where=text("has_transcription IS 0 AND vanished_at IS NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    fiche_cache_id: Mapped[int] = mapped_column(ForeignKey("fiche_cache.id", ondelete="CASCADE"))
    call_id: Mapped[str] = mapped_column(index=True)
    recording_url: Mapped[str]
    recording_date: Mapped[str | None] = mapped_column(index=True)
    recording_time: Mapped[str | None]
    uuid: Mapped[str | None]
    start_time: Mapped[datetime] = mapped_column(UtcDateTime)
    duration_seconds: Mapped[int]
    direction: Mapped[str]
    from_number: Mapped[str]
    to_number: Mapped[str]
    answered: Mapped[bool]
    vanished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Written by transcription alone: what the CRM says of a call never touches what was said in it.
    has_transcription: Mapped[bool] = mapped_column(server_default=false())
    transcription_id: Mapped[str | None]
    transcription_text: Mapped[str | None]
    transcription_language_code: Mapped[str | None]
    transcription_language_probability: Mapped[float | None]
    transcribed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
