"""An audit: one fiche judged by one configuration as it was when the audit began."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, Numeric, text
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, Json, JsonObject, UtcDateTime

_LATEST = text("is_latest")
_RUNNING = text("status = 'running'")


class ConfigSnapshotRow(Table):
    """What a configuration said, by the fingerprint of what it says: audits that began alike share one."""

    __tablename__ = "audit_config_snapshots"

    fingerprint: Mapped[str] = mapped_column(primary_key=True)
    document: Mapped[JsonObject] = mapped_column(Json)


class AuditRow(Table):
    """`tracking_id` is what the audit was asked for by: asking again by the same one goes on with the same audit.

    `fence` is the token of the lease of whoever works on it; a lower one writes nothing any more. Only a completed
    audit has scores and is compliant or not. `coverage` says which recordings the audit needs and which of them have a
    transcript; `timeline_fingerprint` identifies what was said in them.
    """

    __tablename__ = "audits"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'running', 'completed', 'incomplete', 'failed')", name="status"),
        CheckConstraint("NOT (is_latest AND deleted_at IS NOT NULL)", name="latest"),
        CheckConstraint("status != 'incomplete' OR score_percentage IS NULL", name="score"),
        Index(
            "uq_audits_latest",
            "fiche_cache_id",
            "audit_config_id",
            unique=True,
            postgresql_where=_LATEST,
            sqlite_where=_LATEST,
        ),
        Index("ix_audits_running", "touched_at", postgresql_where=_RUNNING, sqlite_where=_RUNNING),
        Index(None, "fiche_cache_id", "audit_config_id", "version"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    tracking_id: Mapped[str] = mapped_column(unique=True)
    fiche_cache_id: Mapped[int] = mapped_column(ForeignKey("fiche_cache.id", ondelete="RESTRICT"))
    audit_config_id: Mapped[int] = mapped_column(ForeignKey("audit_configs.id", ondelete="RESTRICT"), index=True)
    config_fingerprint: Mapped[str] = mapped_column(ForeignKey("audit_config_snapshots.fingerprint"))
    automation_schedule_id: Mapped[int | None] = mapped_column(
        ForeignKey("automation_schedules.id", ondelete="SET NULL"), index=True
    )
    automation_run_id: Mapped[int | None] = mapped_column(
        ForeignKey("automation_runs.id", ondelete="SET NULL"), index=True
    )
    trigger_source: Mapped[str | None] = mapped_column(index=True)
    trigger_user_id: Mapped[str | None]
    notes: Mapped[str | None]
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    overall_score: Mapped[Decimal | None] = mapped_column(Numeric(5, 2))
    score_percentage: Mapped[Decimal | None] = mapped_column(Numeric(5, 2))
    niveau: Mapped[str]
    is_compliant: Mapped[bool | None] = mapped_column(index=True)
    critical_passed: Mapped[int]
    critical_total: Mapped[int]
    status: Mapped[str] = mapped_column(index=True)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    completed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    duration_ms: Mapped[int | None] = mapped_column(BigInteger)
    error_message: Mapped[str | None]
    total_tokens: Mapped[int | None] = mapped_column(BigInteger)
    total_steps: Mapped[int]
    successful_steps: Mapped[int | None]
    failed_steps: Mapped[int | None]
    recordings_count: Mapped[int | None]
    timeline_chunks: Mapped[int | None]
    timeline_fingerprint: Mapped[str | None]
    coverage: Mapped[JsonObject | None] = mapped_column(Json)
    result_data: Mapped[JsonObject | None] = mapped_column(Json)
    version: Mapped[int]
    is_latest: Mapped[bool]
    use_rlm: Mapped[bool]
    transcript_mode: Mapped[str]
    gating: Mapped[JsonObject | None] = mapped_column(Json)
    dagster_run_id: Mapped[str | None]
    fence: Mapped[int] = mapped_column(BigInteger)
    touched_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
