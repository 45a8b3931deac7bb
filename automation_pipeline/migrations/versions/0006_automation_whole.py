"""Automation whole: occurrences, notifications, what a run picked and dropped."""

import sqlalchemy as sa
from alembic import op

from automation_pipeline.storage.types import BigId, Json, UtcDateTime

revision = "0006_automation_whole"
down_revision = "0005_audits"


def upgrade() -> None:
    op.create_table(
        "automation_notifications",
        sa.Column("id", BigId, nullable=False),
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("response_body", sa.String(), nullable=True),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("sent_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint("channel IN ('webhook', 'email')", name=op.f("ck_automation_notifications_channel")),
        sa.CheckConstraint("status IN ('pending', 'sent', 'failed')", name=op.f("ck_automation_notifications_status")),
        sa.ForeignKeyConstraint(
            ["run_id"], ["automation_runs.id"], name=op.f("fk_automation_notifications_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_automation_notifications")),
        sa.UniqueConstraint(
            "run_id", "channel", "target", name=op.f("uq_automation_notifications_run_id_channel_target")
        ),
    )
    op.create_table(
        "automation_due_times",
        sa.Column("schedule_id", BigId, autoincrement=False, nullable=False),
        sa.Column("next_due_at", UtcDateTime(), nullable=False),
        sa.Column("timing", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["automation_schedules.id"],
            name=op.f("fk_automation_due_times_schedule_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("schedule_id", name=op.f("pk_automation_due_times")),
    )
    op.create_table(
        "automation_occurrences",
        sa.Column("id", BigId, nullable=False),
        sa.Column("schedule_id", BigId, nullable=False),
        sa.Column("due_at", UtcDateTime(), nullable=False),
        sa.Column("run_id", BigId, nullable=True),
        sa.Column("not_run_because", sa.String(), nullable=True),
        sa.Column("decided_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["automation_runs.id"], name=op.f("fk_automation_occurrences_run_id"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["automation_schedules.id"],
            name=op.f("fk_automation_occurrences_schedule_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_automation_occurrences")),
        sa.UniqueConstraint("schedule_id", "due_at", name=op.f("uq_automation_occurrences_schedule_id_due_at")),
    )
    op.create_index("ix_automation_occurrences_decided_at", "automation_occurrences", ["decided_at"])
    op.create_index("ix_automation_occurrences_run_id", "automation_occurrences", ["run_id"])

    op.add_column(
        "automation_run_fiche_results", sa.Column("stage", sa.String(), server_default="selected", nullable=False)
    )
    op.create_index("ix_automation_run_fiche_results_fiche_id", "automation_run_fiche_results", ["fiche_id"])
    op.add_column("automation_run_fiche_results", sa.Column("reason", sa.String(), nullable=True))
    op.add_column(
        "automation_run_fiche_results",
        sa.Column("transcribed", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    op.add_column("automation_run_fiche_results", sa.Column("audits", sa.Integer(), server_default="0", nullable=False))

    op.add_column("automation_runs", sa.Column("selection_summary", Json, nullable=True))
    op.add_column(
        "automation_runs", sa.Column("stopped_after_fetch", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.add_column("automation_runs", sa.Column("fetched_at", UtcDateTime(), nullable=True))
    op.add_column("automation_runs", sa.Column("retry_of_run_id", sa.BigInteger(), nullable=True))

    op.add_column("automation_schedules", sa.Column("short_months", sa.String(), server_default="skip", nullable=False))
    op.add_column("automation_schedules", sa.Column("catch_up", sa.String(), server_default="skip", nullable=False))
    op.add_column(
        "automation_schedules", sa.Column("catch_up_limit", sa.Integer(), server_default="10", nullable=False)
    )
    op.add_column("automation_schedules", sa.Column("jitter_seconds", sa.Integer(), server_default="0", nullable=False))
    op.add_column("automation_schedules", sa.Column("pause_after_failures", sa.Integer(), nullable=True))
    op.add_column(
        "automation_schedules", sa.Column("failures_in_a_row", sa.Integer(), server_default="0", nullable=False)
    )
    op.add_column("automation_schedules", sa.Column("paused_reason", sa.String(), nullable=True))
    op.add_column("automation_schedules", sa.Column("skip_due_at", UtcDateTime(), nullable=True))
    op.add_column("automation_schedules", sa.Column("last_due_at", UtcDateTime(), nullable=True))
