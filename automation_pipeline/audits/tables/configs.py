"""Audit configurations and their steps. No two steps of one have the same position."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, TextList, UtcDateTime


class AuditConfigRow(Table):
    __tablename__ = "audit_configs"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str]
    description: Mapped[str | None]
    system_prompt: Mapped[str | None]
    is_active: Mapped[bool] = mapped_column(index=True)
    run_automatically: Mapped[bool] = mapped_column(index=True)
    created_by: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class AuditStepRow(Table):
    __tablename__ = "audit_steps"
    __table_args__ = (
        UniqueConstraint("audit_config_id", "position"),
        CheckConstraint("position >= 1", name="position"),
        CheckConstraint("weight BETWEEN 1 AND 10", name="weight"),
        CheckConstraint("severity_level IN ('LOW', 'MEDIUM', 'HIGH', 'CRITICAL')", name="severity_level"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    audit_config_id: Mapped[int] = mapped_column(ForeignKey("audit_configs.id", ondelete="CASCADE"))
    position: Mapped[int]
    name: Mapped[str]
    description: Mapped[str | None]
    prompt: Mapped[str]
    control_points: Mapped[Sequence[str]] = mapped_column(TextList)
    keywords: Mapped[Sequence[str]] = mapped_column(TextList)
    severity_level: Mapped[str]
    is_critical: Mapped[bool]
    chronological_important: Mapped[bool]
    weight: Mapped[int]
    verify_product_info: Mapped[bool]
