"""Automations and the CRM mirror."""

import sqlalchemy as sa
from alembic import op

from automation_pipeline.storage.types import BigId, BigIntList, Json, TextList, UtcDateTime

revision = "0002_automation"
down_revision = "0001_ground"


def upgrade() -> None:
    op.create_table(
        "automation_schedules",
        sa.Column("id", BigId, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=True),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("schedule_type", sa.String(), nullable=False),
        sa.Column("cron_expression", sa.String(), nullable=True),
        sa.Column("timezone", sa.String(), nullable=False),
        sa.Column("time_of_day", sa.String(), nullable=True),
        sa.Column("day_of_week", sa.Integer(), nullable=True),
        sa.Column("day_of_month", sa.Integer(), nullable=True),
        sa.Column("fiche_selection_mode", sa.String(), nullable=False),
        sa.Column("fiche_selection_date_range", sa.String(), nullable=True),
        sa.Column("fiche_selection_custom_start_date", sa.String(), nullable=True),
        sa.Column("fiche_selection_custom_end_date", sa.String(), nullable=True),
        sa.Column("fiche_selection_groupes", TextList, nullable=False),
        sa.Column("fiche_selection_only_with_recordings", sa.Boolean(), nullable=False),
        sa.Column("fiche_selection_only_unaudited", sa.Boolean(), nullable=False),
        sa.Column("fiche_selection_use_rlm", sa.Boolean(), nullable=False),
        sa.Column("fiche_selection_max_fiches", sa.Integer(), nullable=True),
        sa.Column("fiche_selection_max_recordings_per_fiche", sa.Integer(), nullable=True),
        sa.Column("fiche_selection_fiche_ids", TextList, nullable=False),
        sa.Column("run_transcription", sa.Boolean(), nullable=False),
        sa.Column("skip_if_transcribed", sa.Boolean(), nullable=False),
        sa.Column("transcription_priority", sa.String(), nullable=False),
        sa.Column("run_audits", sa.Boolean(), nullable=False),
        sa.Column("use_automatic_audits", sa.Boolean(), nullable=False),
        sa.Column("specific_audit_configs", BigIntList, nullable=False),
        sa.Column("continue_on_error", sa.Boolean(), nullable=False),
        sa.Column("retry_failed", sa.Boolean(), nullable=False),
        sa.Column("max_retries", sa.Integer(), nullable=False),
        sa.Column("notify_on_complete", sa.Boolean(), nullable=False),
        sa.Column("notify_on_error", sa.Boolean(), nullable=False),
        sa.Column("webhook_url", sa.String(), nullable=True),
        sa.Column("notify_emails", TextList, nullable=False),
        sa.Column("external_api_key", sa.String(), nullable=True),
        sa.Column("last_run_at", UtcDateTime(), nullable=True),
        sa.Column("last_run_status", sa.String(), nullable=True),
        sa.Column("total_runs", sa.Integer(), nullable=False),
        sa.Column("successful_runs", sa.Integer(), nullable=False),
        sa.Column("failed_runs", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_automation_schedules")),
    )
    op.create_index("ix_automation_schedules_created_at", "automation_schedules", ["created_at"])
    op.create_index("ix_automation_schedules_is_active", "automation_schedules", ["is_active"])
    op.create_index("ix_automation_schedules_last_run_at", "automation_schedules", ["last_run_at"])
    op.create_index("ix_automation_schedules_schedule_type", "automation_schedules", ["schedule_type"])

    op.create_table(
        "fiche_cache",
        sa.Column("id", BigId, nullable=False),
        sa.Column("fiche_id", sa.String(), nullable=False),
        sa.Column("groupe", sa.String(), nullable=True),
        sa.Column("agence_nom", sa.String(), nullable=True),
        sa.Column("prospect_nom", sa.String(), nullable=True),
        sa.Column("prospect_prenom", sa.String(), nullable=True),
        sa.Column("prospect_email", sa.String(), nullable=True),
        sa.Column("prospect_tel", sa.String(), nullable=True),
        sa.Column("sales_date", sa.String(), nullable=True),
        sa.Column("cle", sa.String(), nullable=True),
        sa.Column("details_success", sa.Boolean(), nullable=True),
        sa.Column("details_message", sa.String(), nullable=True),
        sa.Column("raw_data", Json, nullable=False),
        sa.Column("fetched_at", UtcDateTime(), nullable=False),
        sa.Column("details_fetched_at", UtcDateTime(), nullable=True),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.Column("last_revalidated_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fiche_cache")),
        sa.UniqueConstraint("fiche_id", name=op.f("uq_fiche_cache_fiche_id")),
    )
    op.create_index("ix_fiche_cache_expires_at", "fiche_cache", ["expires_at"])
    op.create_index("ix_fiche_cache_groupe", "fiche_cache", ["groupe"])
    op.create_index("ix_fiche_cache_last_revalidated_at", "fiche_cache", ["last_revalidated_at"])
    op.create_index("ix_fiche_cache_sales_date", "fiche_cache", ["sales_date"])

    op.create_table(
        "automation_runs",
        sa.Column("id", BigId, nullable=False),
        sa.Column("schedule_id", BigId, nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("phase", sa.String(), nullable=True),
        sa.Column("trigger", sa.String(), nullable=False),
        sa.Column("due_at", UtcDateTime(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("request_key", sa.String(), nullable=True),
        sa.Column("dagster_run_id", sa.String(), nullable=True),
        sa.Column("dagster_root_run_id", sa.String(), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("selected_at", UtcDateTime(), nullable=True),
        sa.Column("completed_at", UtcDateTime(), nullable=True),
        sa.Column("duration_ms", sa.Integer(), nullable=True),
        sa.Column("selected_fiches", sa.Integer(), nullable=False),
        sa.Column("total_fiches", sa.Integer(), nullable=False),
        sa.Column("successful_fiches", sa.Integer(), nullable=False),
        sa.Column("failed_fiches", sa.Integer(), nullable=False),
        sa.Column("ignored_fiches", sa.Integer(), nullable=False),
        sa.Column("transcriptions_run", sa.Integer(), nullable=False),
        sa.Column("audits_run", sa.Integer(), nullable=False),
        sa.Column("error_message", sa.String(), nullable=True),
        sa.Column("error_details", Json, nullable=True),
        sa.Column("config_snapshot", Json, nullable=False),
        sa.Column("result_summary", Json, nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'completed', 'partial', 'failed', 'cancelled')",
            name=op.f("ck_automation_runs_status"),
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["automation_schedules.id"],
            name=op.f("fk_automation_runs_schedule_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_automation_runs")),
        sa.UniqueConstraint("request_key", name=op.f("uq_automation_runs_request_key")),
    )
    op.create_index("ix_automation_runs_schedule_id", "automation_runs", ["schedule_id"])
    op.create_index("ix_automation_runs_started_at", "automation_runs", ["started_at"])
    op.create_index("ix_automation_runs_status", "automation_runs", ["status"])
    op.create_index(
        "uq_automation_runs_unended_root",
        "automation_runs",
        ["dagster_root_run_id"],
        unique=True,
        postgresql_where=sa.text("completed_at IS NULL"),
        sqlite_where=sa.text("completed_at IS NULL"),
    )

    op.create_table(
        "recordings",
        sa.Column("id", BigId, nullable=False),
        sa.Column("fiche_cache_id", BigId, nullable=False),
        sa.Column("call_id", sa.String(), nullable=False),
        sa.Column("recording_url", sa.String(), nullable=False),
        sa.Column("start_time", UtcDateTime(), nullable=False),
        sa.Column("duration_seconds", sa.Integer(), nullable=False),
        sa.Column("direction", sa.String(), nullable=False),
        sa.Column("from_number", sa.String(), nullable=False),
        sa.Column("to_number", sa.String(), nullable=False),
        sa.Column("answered", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"], ["fiche_cache.id"], name=op.f("fk_recordings_fiche_cache_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recordings")),
        sa.UniqueConstraint("fiche_cache_id", "call_id", name=op.f("uq_recordings_fiche_cache_id_call_id")),
    )
    op.create_index("ix_recordings_call_id", "recordings", ["call_id"])

    op.create_table(
        "automation_logs",
        sa.Column("id", BigId, nullable=False),
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("level", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("timestamp", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["automation_runs.id"], name=op.f("fk_automation_logs_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_automation_logs")),
    )
    op.create_index("ix_automation_logs_run_id_id", "automation_logs", ["run_id", "id"])

    op.create_table(
        "automation_run_fiche_results",
        sa.Column("id", BigId, nullable=False),
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("fiche_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("ignore_reason", sa.String(), nullable=True),
        sa.Column("recordings_count", sa.Integer(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint(
            "status IN ('pending', 'successful', 'failed', 'ignored')",
            name=op.f("ck_automation_run_fiche_results_status"),
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["automation_runs.id"], name=op.f("fk_automation_run_fiche_results_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_automation_run_fiche_results")),
        sa.UniqueConstraint("run_id", "fiche_id", name=op.f("uq_automation_run_fiche_results_run_id_fiche_id")),
    )
    op.create_index(
        "ix_automation_run_fiche_results_run_id_batch_status",
        "automation_run_fiche_results",
        ["run_id", "batch", "status"],
    )

    op.create_table(
        "automation_run_heartbeats",
        sa.Column("run_id", BigId, autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("beat_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["automation_runs.id"], name=op.f("fk_automation_run_heartbeats_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_automation_run_heartbeats")),
    )
    op.create_index("ix_automation_run_heartbeats_beat_at", "automation_run_heartbeats", ["beat_at"])
