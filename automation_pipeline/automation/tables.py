"""Tables of automations. The unique (run, fiche) of the ledger is the promise of one outcome a fiche."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, BigIntList, Json, JsonObject, TextList, UtcDateTime


class ScheduleRow(Table):
    __tablename__ = "automation_schedules"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str]
    description: Mapped[str | None]
    created_by: Mapped[str | None]
    is_active: Mapped[bool] = mapped_column(index=True)
    schedule_type: Mapped[str] = mapped_column(index=True)
    cron_expression: Mapped[str | None]
    timezone: Mapped[str]
    time_of_day: Mapped[str | None]
    day_of_week: Mapped[int | None]
    day_of_month: Mapped[int | None]
    fiche_selection_mode: Mapped[str]
    fiche_selection_date_range: Mapped[str | None]
    fiche_selection_custom_start_date: Mapped[str | None]
    fiche_selection_custom_end_date: Mapped[str | None]
    fiche_selection_groupes: Mapped[list[str]] = mapped_column(TextList)
    fiche_selection_only_with_recordings: Mapped[bool]
    fiche_selection_only_unaudited: Mapped[bool]
    fiche_selection_use_rlm: Mapped[bool]
    fiche_selection_max_fiches: Mapped[int | None]
    fiche_selection_max_recordings_per_fiche: Mapped[int | None]
    fiche_selection_fiche_ids: Mapped[list[str]] = mapped_column(TextList)
    run_transcription: Mapped[bool]
    skip_if_transcribed: Mapped[bool]
    transcription_priority: Mapped[str]
    run_audits: Mapped[bool]
    use_automatic_audits: Mapped[bool]
    specific_audit_configs: Mapped[list[int]] = mapped_column(BigIntList)
    continue_on_error: Mapped[bool]
    retry_failed: Mapped[bool]
    max_retries: Mapped[int]
    notify_on_complete: Mapped[bool]
    notify_on_error: Mapped[bool]
    webhook_url: Mapped[str | None]
    notify_emails: Mapped[list[str]] = mapped_column(TextList)
    external_api_key: Mapped[str | None]
    last_run_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    last_run_status: Mapped[str | None]
    total_runs: Mapped[int] = mapped_column(default=0)
    successful_runs: Mapped[int] = mapped_column(default=0)
    failed_runs: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class RunRow(Table):
    """`attempt` is the fence: a step writes only under the attempt that it was started for."""

    __tablename__ = "automation_runs"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'running', 'completed', 'partial', 'failed')", name="status"),
        # A retried Dagster run finds its row by its root; only one unended row may answer.
        Index(
            "uq_automation_runs_unended_root",
            "dagster_root_run_id",
            unique=True,
            postgresql_where=text("completed_at IS NULL"),
            sqlite_where=text("completed_at IS NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    schedule_id: Mapped[int] = mapped_column(ForeignKey("automation_schedules.id", ondelete="CASCADE"), index=True)
    status: Mapped[str] = mapped_column(index=True)
    phase: Mapped[str | None]
    trigger: Mapped[str]
    due_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    attempt: Mapped[int] = mapped_column(default=0)
    request_key: Mapped[str | None] = mapped_column(unique=True)
    dagster_run_id: Mapped[str | None]
    dagster_root_run_id: Mapped[str | None]
    started_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    selected_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    completed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    duration_ms: Mapped[int | None]
    selected_fiches: Mapped[int] = mapped_column(default=0)
    total_fiches: Mapped[int] = mapped_column(default=0)
    successful_fiches: Mapped[int] = mapped_column(default=0)
    failed_fiches: Mapped[int] = mapped_column(default=0)
    ignored_fiches: Mapped[int] = mapped_column(default=0)
    transcriptions_run: Mapped[int] = mapped_column(default=0)
    audits_run: Mapped[int] = mapped_column(default=0)
    error_message: Mapped[str | None]
    error_details: Mapped[JsonObject | None] = mapped_column(Json)
    config_snapshot: Mapped[JsonObject] = mapped_column(Json)
    result_summary: Mapped[JsonObject | None] = mapped_column(Json)


class HeartbeatRow(Table):
    """Its own narrow row, so that beating never waits for a run's other writers."""

    __tablename__ = "automation_run_heartbeats"

    run_id: Mapped[int] = mapped_column(
        ForeignKey("automation_runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    attempt: Mapped[int]
    worker: Mapped[str]
    beat_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class FicheResultRow(Table):
    __tablename__ = "automation_run_fiche_results"
    __table_args__ = (
        UniqueConstraint("run_id", "fiche_id"),
        CheckConstraint("status IN ('pending', 'successful', 'failed', 'ignored')", name="status"),
        Index(None, "run_id", "batch", "status"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("automation_runs.id", ondelete="CASCADE"))
    fiche_id: Mapped[str]
    position: Mapped[int]
    batch: Mapped[int]
    status: Mapped[str]
    error: Mapped[str | None]
    ignore_reason: Mapped[str | None]
    recordings_count: Mapped[int | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class LogRow(Table):
    __tablename__ = "automation_logs"
    __table_args__ = (Index(None, "run_id", "id"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("automation_runs.id", ondelete="CASCADE"))
    level: Mapped[str]
    message: Mapped[str]
    details: Mapped[JsonObject] = mapped_column("metadata", Json)
    timestamp: Mapped[datetime] = mapped_column(UtcDateTime)
