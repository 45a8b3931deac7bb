"""Tables of automations. The unique key (run, fiche) of the ledger guarantees one outcome per
fiche."""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.types import (
    BigId,
    BigIntList,
    Json,
    JsonObject,
    Table,
    TextList,
    UtcDateTime,
)


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
    # If a month lacks the day: `skip` the month, or run on its `last_day`.
    short_months: Mapped[str] = mapped_column(server_default="skip")
    catch_up: Mapped[str] = mapped_column(server_default="skip")
    catch_up_limit: Mapped[int] = mapped_column(server_default="10")
    jitter_seconds: Mapped[int] = mapped_column(server_default="0")
    pause_after_failures: Mapped[int | None]
    overlap_policy: Mapped[str] = mapped_column(server_default="SKIP")
    # Days as YYYY-MM-DD in the schedule's time zone.
    excluded_on: Mapped[list[str]] = mapped_column(TextList, default=list)
    failures_in_a_row: Mapped[int] = mapped_column(server_default="0")
    paused_reason: Mapped[str | None]
    skip_due_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # The last occurrence that has a decision, run or not. Manual runs update `last_run_at` too.
    last_due_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_run_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
    last_run_status: Mapped[str | None]
    total_runs: Mapped[int] = mapped_column(default=0)
    successful_runs: Mapped[int] = mapped_column(default=0)
    failed_runs: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    # A deleted schedule keeps its row, so that its runs, audits and events stay readable.
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class DueTimeRow(Table):
    """The first due time of an active schedule without a decision, and the timing that it was
    computed for. Only due detection writes it: code that changes a schedule does not maintain
    it."""

    __tablename__ = "automation_due_times"

    schedule_id: Mapped[int] = mapped_column(
        ForeignKey("automation_schedules.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )
    next_due_at: Mapped[datetime] = mapped_column(UtcDateTime)
    timing: Mapped[str]


class OccurrenceRow(Table):
    """The decision about one due time of a schedule: a run, or the reason for none."""

    __tablename__ = "automation_occurrences"
    __table_args__ = (UniqueConstraint("schedule_id", "due_at"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    schedule_id: Mapped[int] = mapped_column(
        ForeignKey("automation_schedules.id", ondelete="CASCADE")
    )
    due_at: Mapped[datetime] = mapped_column(UtcDateTime)
    run_id: Mapped[int | None] = mapped_column(
        ForeignKey("automation_runs.id", ondelete="SET NULL"), index=True
    )
    not_run_because: Mapped[str | None]
    decided_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class RunRow(Table):
    """`attempt` is the fence: a step writes only under the attempt that started it."""

    __tablename__ = "automation_runs"
    __table_args__ = (
        CheckConstraint(
            "status IN ('pending', 'running', 'completed', 'partial', 'failed', 'cancelled')",
            name="status",
        ),
        # A retried Dagster run finds its row by its root run: at most one unfinished row may match.
        Index(
            "uq_automation_runs_unended_root",
            "dagster_root_run_id",
            unique=True,
            postgresql_where=text("completed_at IS NULL"),
            sqlite_where=text("completed_at IS NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    schedule_id: Mapped[int] = mapped_column(
        ForeignKey("automation_schedules.id", ondelete="CASCADE"), index=True
    )
    status: Mapped[str] = mapped_column(index=True)
    phase: Mapped[str | None]
    trigger: Mapped[str]
    due_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    attempt: Mapped[int] = mapped_column(default=0)
    request_key: Mapped[str | None] = mapped_column(unique=True)
    dagster_run_id: Mapped[str | None]
    dagster_root_run_id: Mapped[str | None]
    # The time when the run was queued; `began_at` is when its first attempt started.
    started_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    began_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
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
    # Counts of resolved, selected and dropped fiches, by stable keys.
    selection_summary: Mapped[JsonObject | None] = mapped_column(Json)
    # The later stages are skipped: a fetch failed, and the schedule stops on errors.
    stopped_after_fetch: Mapped[bool] = mapped_column(server_default=false())
    fetched_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    retry_of_run_id: Mapped[int | None] = mapped_column(BigInteger)
    # The ledger's progress when the attempt started, and the number of consecutive attempts lost
    # without progress.
    progress_mark: Mapped[int] = mapped_column(server_default="0")
    fruitless_attempts: Mapped[int] = mapped_column(server_default="0")

    @property
    def queued_at(self) -> datetime:
        return self.started_at


class HeartbeatRow(Table):
    """A separate narrow row, so that heartbeats never wait for other writers of the run."""

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
        Index(None, "fiche_id"),
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
    # A pending fiche is `selected`, or `fetched`: its details are stored and it has passed the
    # filters.
    stage: Mapped[str] = mapped_column(server_default="selected")
    # Why the fiche was ignored or failed, as a key that stays the same when the text changes.
    reason: Mapped[str | None]
    transcribed: Mapped[bool] = mapped_column(server_default=false())
    audits: Mapped[int] = mapped_column(server_default="0")
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


class NotificationRow(Table):
    """One message about a run to one receiver, with its delivery status."""

    __tablename__ = "automation_notifications"
    __table_args__ = (
        UniqueConstraint("run_id", "channel", "target"),
        CheckConstraint("channel IN ('webhook', 'email')", name="channel"),
        CheckConstraint("status IN ('pending', 'sent', 'failed')", name="status"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("automation_runs.id", ondelete="CASCADE"))
    channel: Mapped[str]
    target: Mapped[str]
    payload: Mapped[JsonObject] = mapped_column(Json)
    status: Mapped[str]
    attempts: Mapped[int]
    status_code: Mapped[int | None]
    response_body: Mapped[str | None]
    last_error: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class RunPhaseRow(Table):
    """The time at which an attempt first entered each phase."""

    __tablename__ = "automation_run_phases"

    run_id: Mapped[int] = mapped_column(
        ForeignKey("automation_runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    phase: Mapped[str] = mapped_column(primary_key=True)
    entered_at: Mapped[datetime] = mapped_column(UtcDateTime)
