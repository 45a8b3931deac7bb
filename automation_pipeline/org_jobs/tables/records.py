"""What is kept to be looked at: who changed what, and the alerts that were raised."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, Json, JsonObject, UtcDateTime


class AuditLogRow(Table):
    """Something that somebody did, with what was changed by it."""

    __tablename__ = "org_audit_log"
    __table_args__ = (Index(None, "org_id", "at"), Index(None, "entity", "entity_id"))

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    actor: Mapped[str]
    action: Mapped[str]
    entity: Mapped[str]
    entity_id: Mapped[str]
    before: Mapped[JsonObject | None] = mapped_column(Json)
    after: Mapped[JsonObject | None] = mapped_column(Json)
    reason: Mapped[str | None]
    at: Mapped[datetime] = mapped_column(UtcDateTime)


class AlertRow(Table):
    """An alert that was raised, and how its webhook stands. `subject` is what it is about."""

    __tablename__ = "org_alerts"
    __table_args__ = (
        CheckConstraint("severity IN ('warning', 'critical')", name="severity"),
        CheckConstraint("status IN ('pending', 'sent', 'failed', 'unsent')", name="status"),
        Index(None, "name", "subject", "raised_at"),
        Index(None, "org_id", "raised_at"),
        Index(None, "status", "next_retry_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    # NULL: about the scheduler itself.
    org_id: Mapped[str | None] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    name: Mapped[str]
    severity: Mapped[str]
    subject: Mapped[str]
    message: Mapped[str]
    raised_at: Mapped[datetime] = mapped_column(UtcDateTime)
    # `unsent`: no webhook was configured.
    status: Mapped[str]
    attempts: Mapped[int] = mapped_column(default=0)
    status_code: Mapped[int | None]
    last_error: Mapped[str | None]
    next_retry_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
