"""Audits asked for together. A batch ends with its last item, however that one ends."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, UtcDateTime


class AuditBatchRow(Table):
    __tablename__ = "audit_batches"

    id: Mapped[str] = mapped_column(primary_key=True)
    audit_config_id: Mapped[int] = mapped_column(ForeignKey("audit_configs.id", ondelete="RESTRICT"))
    total: Mapped[int]
    succeeded: Mapped[int]
    failed: Mapped[int]
    trigger_user_id: Mapped[str | None]
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    completed_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)


class AuditBatchItemRow(Table):
    """One fiche of a batch; its audit has the item's `tracking_id`, if one was ever begun."""

    __tablename__ = "audit_batch_items"
    __table_args__ = (
        UniqueConstraint("batch_id", "fiche_id"),
        CheckConstraint("state IN ('pending', 'completed', 'failed')", name="state"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    batch_id: Mapped[str] = mapped_column(ForeignKey("audit_batches.id", ondelete="CASCADE"))
    fiche_id: Mapped[str]
    tracking_id: Mapped[str] = mapped_column(unique=True)
    state: Mapped[str] = mapped_column(index=True)
    error: Mapped[str | None]
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
