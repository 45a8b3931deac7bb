"""What is looked at after a run: the checks whether the shop still has its prices, and the alerts that were raised."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, Json, JsonObject, UtcDateTime


class CheckRow(Table):
    """A reconciliation of one run: `name` is 5m, 1h, a day, or manual with a number. Without a report it is due."""

    __tablename__ = "rule_checks"
    __table_args__ = (
        UniqueConstraint("rule_run_id", "name"),
        Index(None, "checked_at", "due_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    rule_run_id: Mapped[int] = mapped_column(ForeignKey("rule_runs.id", ondelete="CASCADE"))
    name: Mapped[str]
    due_at: Mapped[datetime] = mapped_column(UtcDateTime)
    requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    checked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    total_checked: Mapped[int | None]
    mismatches: Mapped[int | None]
    unverified: Mapped[int | None]
    worst: Mapped[str | None]
    report: Mapped[JsonObject | None] = mapped_column(Json)


class AlertRow(Table):
    """An alert that was raised, and how its webhook stands."""

    __tablename__ = "pricing_alerts"
    __table_args__ = (
        CheckConstraint("severity IN ('warning', 'critical')", name="severity"),
        CheckConstraint("status IN ('pending', 'sent', 'failed', 'unsent')", name="status"),
        Index(None, "tenant_id", "project_id", "name", "raised_at"),
        Index(None, "status", "next_retry_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    tenant_id: Mapped[str]
    project_id: Mapped[str]
    name: Mapped[str]
    severity: Mapped[str]
    message: Mapped[str]
    raised_at: Mapped[datetime] = mapped_column(UtcDateTime)
    # `unsent`: no webhook was configured.
    status: Mapped[str]
    attempts: Mapped[int] = mapped_column(default=0)
    status_code: Mapped[int | None]
    last_error: Mapped[str | None]
    next_retry_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
