"""Jobs of organisations: tenants with hosts and servers, schedules with their fires, queues, alerts, an audit log."""

import sqlalchemy as sa
from alembic import op

from automation_pipeline.storage.types import BigId, Json, TextList, UtcDateTime

revision = "0009_org_jobs"
down_revision = "0008_pricing"


def upgrade() -> None:
    op.create_table(
        "organisations",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("max_running", sa.Integer(), nullable=False),
        sa.Column("suspended_at", UtcDateTime(), nullable=True),
        sa.Column("suspend_reason", sa.String(), nullable=True),
        sa.Column("maintenance_until", UtcDateTime(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("max_running BETWEEN 1 AND 1000", name=op.f("ck_organisations_max_running")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organisations")),
    )
    op.create_table(
        "org_alerts",
        sa.Column("id", BigId, nullable=False),
        sa.Column("org_id", sa.String(), nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("raised_at", UtcDateTime(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.Column("next_retry_at", UtcDateTime(), nullable=False),
        sa.Column("sent_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint("severity IN ('warning', 'critical')", name=op.f("ck_org_alerts_severity")),
        sa.CheckConstraint("status IN ('pending', 'sent', 'failed', 'unsent')", name=op.f("ck_org_alerts_status")),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organisations.id"], name=op.f("fk_org_alerts_org_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_org_alerts")),
    )
    op.create_index("ix_org_alerts_name_subject_raised_at", "org_alerts", ["name", "subject", "raised_at"])
    op.create_index("ix_org_alerts_org_id_raised_at", "org_alerts", ["org_id", "raised_at"])
    op.create_index("ix_org_alerts_status_next_retry_at", "org_alerts", ["status", "next_retry_at"])

    op.create_table(
        "org_audit_log",
        sa.Column("id", BigId, nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("entity", sa.String(), nullable=False),
        sa.Column("entity_id", sa.String(), nullable=False),
        sa.Column("before", Json, nullable=True),
        sa.Column("after", Json, nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organisations.id"], name=op.f("fk_org_audit_log_org_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_org_audit_log")),
    )
    op.create_index("ix_org_audit_log_entity_entity_id", "org_audit_log", ["entity", "entity_id"])
    op.create_index("ix_org_audit_log_org_id_at", "org_audit_log", ["org_id", "at"])

    op.create_table(
        "org_hosts",
        sa.Column("id", BigId, nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("maintenance_until", UtcDateTime(), nullable=True),
        sa.Column("last_seen_at", UtcDateTime(), nullable=True),
        sa.Column("agent_version", sa.String(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organisations.id"], name=op.f("fk_org_hosts_org_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_org_hosts")),
        sa.UniqueConstraint("org_id", "name", name=op.f("uq_org_hosts_org_id_name")),
    )
    op.create_table(
        "server_instances",
        sa.Column("id", BigId, nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("host_id", BigId, nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("is_enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["org_hosts.id"], name=op.f("fk_server_instances_host_id")),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organisations.id"], name=op.f("fk_server_instances_org_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_server_instances")),
        sa.UniqueConstraint("org_id", "name", name=op.f("uq_server_instances_org_id_name")),
    )
    op.create_index("ix_server_instances_host_id", "server_instances", ["host_id"])

    op.create_table(
        "org_schedules",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("server_instance_id", BigId, nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("cron_expression", sa.String(), nullable=False),
        sa.Column("timezone", sa.String(), nullable=False),
        sa.Column("job_type", sa.String(), nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("execution_window_start", sa.String(), nullable=True),
        sa.Column("execution_window_end", sa.String(), nullable=True),
        sa.Column("window_policy", sa.String(), nullable=False),
        sa.Column("latest_start_cutoff_min", sa.Integer(), nullable=False),
        sa.Column("retry_policy", Json, nullable=True),
        sa.Column("misfire_policy", sa.String(), nullable=False),
        sa.Column("misfire_grace_s", sa.Integer(), nullable=False),
        sa.Column("overlap_policy", sa.String(), nullable=False),
        sa.Column("jitter_s", sa.Integer(), nullable=False),
        sa.Column("start_at", UtcDateTime(), nullable=True),
        sa.Column("end_at", UtcDateTime(), nullable=True),
        sa.Column("excluded_on", TextList, nullable=False),
        sa.Column("skip_if_offline", sa.Boolean(), nullable=False),
        sa.Column("auto_pause_after", sa.Integer(), nullable=False),
        sa.Column("paused_until", UtcDateTime(), nullable=True),
        sa.Column("pause_reason", sa.String(), nullable=True),
        sa.Column("is_suspended", sa.Boolean(), nullable=False),
        sa.Column("skip_next_run", sa.Boolean(), nullable=False),
        sa.Column("skip_next_run_reason", sa.String(), nullable=True),
        sa.Column("skip_next_run_requested_at", UtcDateTime(), nullable=True),
        sa.Column("next_run_at", UtcDateTime(), nullable=True),
        sa.Column("next_scheduled_for", UtcDateTime(), nullable=True),
        sa.Column("last_run_at", UtcDateTime(), nullable=True),
        sa.Column("last_run_job_id", sa.BigInteger(), nullable=True),
        sa.Column("last_dispatch_status", sa.String(), nullable=True),
        sa.Column("last_job_status", sa.String(), nullable=True),
        sa.Column("last_scheduled_for", UtcDateTime(), nullable=True),
        sa.Column("run_count", sa.Integer(), nullable=False),
        sa.Column("failure_count", sa.Integer(), nullable=False),
        sa.Column("consecutive_failures", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("deleted_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint(
            "misfire_policy IN ('SKIP', 'FIRE_ONCE', 'FIRE_ALL')", name=op.f("ck_org_schedules_misfire_policy")
        ),
        sa.CheckConstraint(
            "overlap_policy IN ('SKIP', 'BUFFER_ONE', 'BUFFER_ALL', 'CANCEL_OTHER', 'TERMINATE_OTHER', 'ALLOW_ALL')",
            name=op.f("ck_org_schedules_overlap_policy"),
        ),
        sa.CheckConstraint(
            "state <> 'ACTIVE' OR (enabled AND next_run_at IS NOT NULL)", name=op.f("ck_org_schedules_active_is_due")
        ),
        sa.CheckConstraint("state = 'ACTIVE' OR next_run_at IS NULL", name=op.f("ck_org_schedules_only_active_is_due")),
        sa.CheckConstraint(
            "state IN ('ACTIVE', 'PAUSED', 'INVALID_CRON', 'COMPLETED')", name=op.f("ck_org_schedules_state")
        ),
        sa.CheckConstraint("window_policy IN ('CLAMP', 'FILTER')", name=op.f("ck_org_schedules_window_policy")),
        sa.CheckConstraint(
            "(execution_window_start IS NULL) = (execution_window_end IS NULL)"
            " AND (execution_window_start IS NULL OR execution_window_start <> execution_window_end)",
            name=op.f("ck_org_schedules_execution_window"),
        ),
        sa.CheckConstraint("(next_run_at IS NULL) = (next_scheduled_for IS NULL)", name=op.f("ck_org_schedules_next")),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organisations.id"], name=op.f("fk_org_schedules_org_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["server_instance_id"], ["server_instances.id"], name=op.f("fk_org_schedules_server_instance_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_org_schedules")),
    )
    op.create_index(
        "ix_org_schedules_due",
        "org_schedules",
        ["next_run_at"],
        postgresql_where=sa.text("state = 'ACTIVE' AND deleted_at IS NULL"),
        sqlite_where=sa.text("state = 'ACTIVE' AND deleted_at IS NULL"),
    )
    op.create_index("ix_org_schedules_org_id_created_at", "org_schedules", ["org_id", "created_at"])
    op.create_index(
        "ix_org_schedules_paused_until",
        "org_schedules",
        ["paused_until"],
        postgresql_where=sa.text("paused_until IS NOT NULL"),
        sqlite_where=sa.text("paused_until IS NOT NULL"),
    )
    op.create_index("ix_org_schedules_server_instance_id", "org_schedules", ["server_instance_id"])

    op.create_table(
        "org_job_batches",
        sa.Column("id", BigId, nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("schedule_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("behaviour", sa.String(), nullable=False),
        sa.Column("from_at", UtcDateTime(), nullable=False),
        sa.Column("until_at", UtcDateTime(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint(
            "status IN ('running', 'completed', 'completed_with_failures', 'cancelled')",
            name=op.f("ck_org_job_batches_status"),
        ),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organisations.id"], name=op.f("fk_org_job_batches_org_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["org_schedules.id"], name=op.f("fk_org_job_batches_schedule_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_org_job_batches")),
    )
    op.create_index("ix_org_job_batches_org_id_created_at", "org_job_batches", ["org_id", "created_at"])
    op.create_index("ix_org_job_batches_schedule_id", "org_job_batches", ["schedule_id"])

    op.create_table(
        "org_schedule_fires",
        sa.Column("id", BigId, nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("schedule_id", sa.String(), nullable=False),
        sa.Column("scheduled_for", UtcDateTime(), nullable=False),
        sa.Column("effective_for", UtcDateTime(), nullable=False),
        sa.Column("fired_at", UtcDateTime(), nullable=False),
        sa.Column("trigger", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("skip_reason", sa.String(), nullable=True),
        sa.Column("batch_id", BigId, nullable=True),
        sa.Column("client_key", sa.String(), nullable=True),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint("(outcome = 'FAILED') = (error IS NOT NULL)", name=op.f("ck_org_schedule_fires_error")),
        sa.CheckConstraint(
            "(outcome = 'SKIPPED') = (skip_reason IS NOT NULL)", name=op.f("ck_org_schedule_fires_skip_reason")
        ),
        sa.CheckConstraint("(trigger = 'BACKFILL') = (batch_id IS NOT NULL)", name=op.f("ck_org_schedule_fires_batch")),
        sa.CheckConstraint(
            "outcome IN ('DISPATCHED', 'SKIPPED', 'FAILED')", name=op.f("ck_org_schedule_fires_outcome")
        ),
        sa.CheckConstraint(
            "trigger IN ('CRON', 'CATCHUP', 'MANUAL', 'BACKFILL')", name=op.f("ck_org_schedule_fires_trigger")
        ),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["org_job_batches.id"], name=op.f("fk_org_schedule_fires_batch_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organisations.id"], name=op.f("fk_org_schedule_fires_org_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["org_schedules.id"], name=op.f("fk_org_schedule_fires_schedule_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_org_schedule_fires")),
    )
    op.create_index("ix_org_schedule_fires_fired_at", "org_schedule_fires", ["fired_at"])
    op.create_index("ix_org_schedule_fires_schedule_id_fired_at", "org_schedule_fires", ["schedule_id", "fired_at"])
    op.create_index(
        "uq_org_schedule_fires_batch",
        "org_schedule_fires",
        ["batch_id", "scheduled_for"],
        unique=True,
        postgresql_where=sa.text("batch_id IS NOT NULL"),
        sqlite_where=sa.text("batch_id IS NOT NULL"),
    )
    op.create_index(
        "uq_org_schedule_fires_client_key",
        "org_schedule_fires",
        ["schedule_id", "client_key"],
        unique=True,
        postgresql_where=sa.text("client_key IS NOT NULL"),
        sqlite_where=sa.text("client_key IS NOT NULL"),
    )
    op.create_index(
        "uq_org_schedule_fires_cron",
        "org_schedule_fires",
        ["schedule_id", "scheduled_for"],
        unique=True,
        postgresql_where=sa.text("trigger IN ('CRON', 'CATCHUP')"),
        sqlite_where=sa.text("trigger IN ('CRON', 'CATCHUP')"),
    )

    op.create_table(
        "org_jobs",
        sa.Column("id", BigId, nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("batch_id", BigId, nullable=True),
        sa.Column("server_instance_id", BigId, nullable=True),
        sa.Column("schedule_id", sa.String(), nullable=True),
        sa.Column("schedule_fire_id", BigId, nullable=True),
        sa.Column("scheduled_for", UtcDateTime(), nullable=True),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("performer", sa.String(), nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("retry_policy", Json, nullable=False),
        sa.Column("start_window", Json, nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint("performer IN ('agent', 'service')", name=op.f("ck_org_jobs_performer")),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'success', 'failed', 'cancelled')", name=op.f("ck_org_jobs_status")
        ),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["org_job_batches.id"], name=op.f("fk_org_jobs_batch_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["org_id"], ["organisations.id"], name=op.f("fk_org_jobs_org_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["schedule_fire_id"],
            ["org_schedule_fires.id"],
            name=op.f("fk_org_jobs_schedule_fire_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["org_schedules.id"], name=op.f("fk_org_jobs_schedule_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["server_instance_id"], ["server_instances.id"], name=op.f("fk_org_jobs_server_instance_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_org_jobs")),
        sa.UniqueConstraint("schedule_fire_id", name=op.f("uq_org_jobs_schedule_fire_id")),
    )
    op.create_index("ix_org_jobs_batch_id", "org_jobs", ["batch_id"])
    op.create_index("ix_org_jobs_finished_at", "org_jobs", ["finished_at"])
    op.create_index("ix_org_jobs_org_id_created_at", "org_jobs", ["org_id", "created_at"])
    op.create_index("ix_org_jobs_schedule_id_created_at", "org_jobs", ["schedule_id", "created_at"])
    op.create_index("ix_org_jobs_server_instance_id", "org_jobs", ["server_instance_id"])

    op.create_table(
        "org_job_runs",
        sa.Column("id", BigId, nullable=False),
        sa.Column("job_id", BigId, nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("schedule_id", sa.String(), nullable=True),
        sa.Column("host_id", BigId, nullable=True),
        sa.Column("performer", sa.String(), nullable=False),
        sa.Column("is_mutation", sa.Boolean(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("line", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempt_no", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", UtcDateTime(), nullable=True),
        sa.Column("requested_at", UtcDateTime(), nullable=True),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("lease_owner", sa.String(), nullable=True),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", UtcDateTime(), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("deadline_at", UtcDateTime(), nullable=True),
        sa.Column("progress", Json, nullable=True),
        sa.Column("progress_at", UtcDateTime(), nullable=True),
        sa.Column("following", Json, nullable=True),
        sa.Column("cancel_requested_at", UtcDateTime(), nullable=True),
        sa.Column("cancelled_by", sa.String(), nullable=True),
        sa.Column("cancel_reason", sa.String(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("result", Json, nullable=True),
        sa.Column("log_ref", sa.String(), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("dagster_run_id", sa.String(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint(
            "(status IN ('pending', 'running')) = (finished_at IS NULL)", name=op.f("ck_org_job_runs_finished")
        ),
        sa.CheckConstraint("performer IN ('agent', 'service')", name=op.f("ck_org_job_runs_performer")),
        sa.CheckConstraint("status <> 'failed' OR error_code IS NOT NULL", name=op.f("ck_org_job_runs_error_code")),
        sa.CheckConstraint("status <> 'running' OR started_at IS NOT NULL", name=op.f("ck_org_job_runs_started")),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'success', 'failed', 'cancelled')", name=op.f("ck_org_job_runs_status")
        ),
        sa.CheckConstraint("attempt_no BETWEEN 1 AND max_attempts", name=op.f("ck_org_job_runs_attempt_no")),
        sa.ForeignKeyConstraint(["host_id"], ["org_hosts.id"], name=op.f("fk_org_job_runs_host_id")),
        sa.ForeignKeyConstraint(["job_id"], ["org_jobs.id"], name=op.f("fk_org_job_runs_job_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organisations.id"], name=op.f("fk_org_job_runs_org_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_org_job_runs")),
    )
    op.create_index(
        "ix_org_job_runs_host",
        "org_job_runs",
        ["host_id"],
        postgresql_where=sa.text("status IN ('pending', 'running')"),
        sqlite_where=sa.text("status IN ('pending', 'running')"),
    )
    op.create_index("ix_org_job_runs_job_id", "org_job_runs", ["job_id"])
    op.create_index(
        "ix_org_job_runs_line",
        "org_job_runs",
        ["line", "id"],
        postgresql_where=sa.text("status IN ('pending', 'running')"),
        sqlite_where=sa.text("status IN ('pending', 'running')"),
    )
    op.create_index(
        "ix_org_job_runs_pending",
        "org_job_runs",
        ["org_id", "priority", "id"],
        postgresql_where=sa.text("status = 'pending'"),
        sqlite_where=sa.text("status = 'pending'"),
    )
    op.create_index(
        "ix_org_job_runs_running",
        "org_job_runs",
        ["lease_until"],
        postgresql_where=sa.text("status = 'running'"),
        sqlite_where=sa.text("status = 'running'"),
    )
    op.create_index(
        "ix_org_job_runs_schedule",
        "org_job_runs",
        ["schedule_id"],
        postgresql_where=sa.text("status IN ('pending', 'running')"),
        sqlite_where=sa.text("status IN ('pending', 'running')"),
    )

    op.create_table(
        "org_job_attempts",
        sa.Column("id", BigId, nullable=False),
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("attempt_no", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("host_id", sa.Integer(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=False),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("result", Json, nullable=True),
        sa.Column("log_ref", sa.String(), nullable=True),
        sa.Column("retry_at", UtcDateTime(), nullable=True),
        sa.Column("late_report", Json, nullable=True),
        sa.CheckConstraint("status IN ('success', 'failed', 'cancelled')", name=op.f("ck_org_job_attempts_status")),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organisations.id"], name=op.f("fk_org_job_attempts_org_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["org_job_runs.id"], name=op.f("fk_org_job_attempts_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_org_job_attempts")),
        sa.UniqueConstraint("run_id", "attempt_no", name=op.f("uq_org_job_attempts_run_id_attempt_no")),
    )
    op.add_column("api_tokens", sa.Column("org_id", sa.String(), nullable=True))
