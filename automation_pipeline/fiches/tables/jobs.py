"""Tables of the jobs that bring the sales lists of a range of days, and of what their webhooks were told."""

from datetime import date, datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, Json, JsonObject, TextList, UtcDateTime


class FetchJobRow(Table):
    """Days fetched, remaining and failed are the days asked for, each once."""

    __tablename__ = "progressive_fetch_jobs"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'processing', 'complete', 'failed')", name="status"),
        Index(None, "start_date", "end_date"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    start_date: Mapped[date]
    end_date: Mapped[date]
    status: Mapped[str] = mapped_column(index=True)
    total_days: Mapped[int]
    dates_already_fetched: Mapped[list[str]] = mapped_column(TextList)
    dates_remaining: Mapped[list[str]] = mapped_column(TextList)
    dates_failed: Mapped[list[str]] = mapped_column(TextList)
    # NULL where whoever asked must not know it: of what is within reach it is counted when it is shown.
    total_fiches: Mapped[int | None]
    webhook_url: Mapped[str | None]
    webhook_secret: Mapped[str | None]
    error: Mapped[str | None]
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    completed_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)


class FetchDeliveryRow(Table):
    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        CheckConstraint("event IN ('progress', 'complete', 'failed')", name="event"),
        CheckConstraint("status IN ('pending', 'sent', 'failed')", name="status"),
        Index(None, "status", "next_retry_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("progressive_fetch_jobs.id", ondelete="CASCADE"), index=True)
    event: Mapped[str]
    url: Mapped[str]
    payload: Mapped[JsonObject] = mapped_column(Json)
    status: Mapped[str]
    status_code: Mapped[int | None]
    response_body: Mapped[str | None]
    last_error: Mapped[str | None]
    attempt: Mapped[int] = mapped_column(default=0)
    next_retry_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
