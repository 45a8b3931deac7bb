"""Schedules, and every time that one of them was due."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, Json, JsonObject, TextList, UtcDateTime

_ACTIVE = text("state = 'ACTIVE' AND deleted_at IS NULL")
_PAUSED_UNTIL = text("paused_until IS NOT NULL")
_BY_CRON = text("trigger IN ('CRON', 'CATCHUP')")
_OF_A_BATCH = text("batch_id IS NOT NULL")
_BY_HAND = text("client_key IS NOT NULL")


class ScheduleRow(Table):
    """`next_run_at` is when it may be dispatched next; it stands for `next_scheduled_for`, what the cron says. Both are
    NULL unless it is ACTIVE. `enabled` is what the operator wants. `version` rises with every change."""

    __tablename__ = "org_schedules"
    __table_args__ = (
        CheckConstraint("state IN ('ACTIVE', 'PAUSED', 'INVALID_CRON', 'COMPLETED')", name="state"),
        CheckConstraint("state <> 'ACTIVE' OR (enabled AND next_run_at IS NOT NULL)", name="active_is_due"),
        CheckConstraint("state = 'ACTIVE' OR next_run_at IS NULL", name="only_active_is_due"),
        CheckConstraint("(next_run_at IS NULL) = (next_scheduled_for IS NULL)", name="next"),
        CheckConstraint(
            "(execution_window_start IS NULL) = (execution_window_end IS NULL)"
            " AND (execution_window_start IS NULL OR execution_window_start <> execution_window_end)",
            name="execution_window",
        ),
        CheckConstraint("window_policy IN ('CLAMP', 'FILTER')", name="window_policy"),
        CheckConstraint("misfire_policy IN ('SKIP', 'FIRE_ONCE', 'FIRE_ALL')", name="misfire_policy"),
        CheckConstraint(
            "overlap_policy IN ('SKIP', 'BUFFER_ONE', 'BUFFER_ALL', 'CANCEL_OTHER', 'TERMINATE_OTHER', 'ALLOW_ALL')",
            name="overlap_policy",
        ),
        Index("ix_org_schedules_due", "next_run_at", postgresql_where=_ACTIVE, sqlite_where=_ACTIVE),
        Index(
            "ix_org_schedules_paused_until", "paused_until", postgresql_where=_PAUSED_UNTIL, sqlite_where=_PAUSED_UNTIL
        ),
        Index(None, "org_id", "created_at"),
        Index(None, "server_instance_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    server_instance_id: Mapped[int | None] = mapped_column(ForeignKey("server_instances.id"))
    name: Mapped[str]
    description: Mapped[str | None]
    cron_expression: Mapped[str]
    timezone: Mapped[str]
    job_type: Mapped[str]
    payload: Mapped[JsonObject] = mapped_column(Json)
    priority: Mapped[int]
    enabled: Mapped[bool]
    state: Mapped[str]
    execution_window_start: Mapped[str | None]
    execution_window_end: Mapped[str | None]
    window_policy: Mapped[str]
    latest_start_cutoff_min: Mapped[int]
    retry_policy: Mapped[JsonObject | None] = mapped_column(Json)
    misfire_policy: Mapped[str]
    misfire_grace_s: Mapped[int]
    overlap_policy: Mapped[str]
    jitter_s: Mapped[int]
    start_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    end_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Days as YYYY-MM-DD in its own time zone.
    excluded_on: Mapped[Sequence[str]] = mapped_column(TextList)
    skip_if_offline: Mapped[bool]
    auto_pause_after: Mapped[int]
    paused_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    pause_reason: Mapped[str | None]
    # Paused with its organisation, and to be resumed with it.
    is_suspended: Mapped[bool] = mapped_column(default=False)
    skip_next_run: Mapped[bool] = mapped_column(default=False)
    skip_next_run_reason: Mapped[str | None]
    skip_next_run_requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    next_run_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    next_scheduled_for: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_run_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_run_job_id: Mapped[int | None] = mapped_column(BigInteger)
    last_dispatch_status: Mapped[str | None]
    last_job_status: Mapped[str | None]
    last_scheduled_for: Mapped[datetime | None] = mapped_column(UtcDateTime)
    run_count: Mapped[int] = mapped_column(default=0)
    failure_count: Mapped[int] = mapped_column(default=0)
    consecutive_failures: Mapped[int] = mapped_column(default=0)
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    version: Mapped[int] = mapped_column(default=1)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class FireRow(Table):
    """One due time of a schedule and what became of it. A time that the cron says is decided upon once, whoever does
    it; one of a backfill once a backfill; one by hand once for the caller's key."""

    __tablename__ = "org_schedule_fires"
    __table_args__ = (
        CheckConstraint("trigger IN ('CRON', 'CATCHUP', 'MANUAL', 'BACKFILL')", name="trigger"),
        CheckConstraint("outcome IN ('DISPATCHED', 'SKIPPED', 'FAILED')", name="outcome"),
        CheckConstraint("(outcome = 'SKIPPED') = (skip_reason IS NOT NULL)", name="skip_reason"),
        CheckConstraint("(outcome = 'FAILED') = (error IS NOT NULL)", name="error"),
        CheckConstraint("(trigger = 'BACKFILL') = (batch_id IS NOT NULL)", name="batch"),
        Index(
            "uq_org_schedule_fires_cron",
            "schedule_id",
            "scheduled_for",
            unique=True,
            postgresql_where=_BY_CRON,
            sqlite_where=_BY_CRON,
        ),
        Index(
            "uq_org_schedule_fires_batch",
            "batch_id",
            "scheduled_for",
            unique=True,
            postgresql_where=_OF_A_BATCH,
            sqlite_where=_OF_A_BATCH,
        ),
        Index(
            "uq_org_schedule_fires_client_key",
            "schedule_id",
            "client_key",
            unique=True,
            postgresql_where=_BY_HAND,
            sqlite_where=_BY_HAND,
        ),
        Index(None, "schedule_id", "fired_at"),
        Index(None, "fired_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    schedule_id: Mapped[str] = mapped_column(ForeignKey("org_schedules.id", ondelete="CASCADE"))
    scheduled_for: Mapped[datetime] = mapped_column(UtcDateTime)
    effective_for: Mapped[datetime] = mapped_column(UtcDateTime)
    fired_at: Mapped[datetime] = mapped_column(UtcDateTime)
    trigger: Mapped[str]
    outcome: Mapped[str]
    skip_reason: Mapped[str | None]
    batch_id: Mapped[int | None] = mapped_column(ForeignKey("org_job_batches.id", ondelete="CASCADE"))
    client_key: Mapped[str | None]
    actor: Mapped[str]
    # Why it failed, in words; of one that was left out, more about it.
    error: Mapped[str | None]
    note: Mapped[str | None]
