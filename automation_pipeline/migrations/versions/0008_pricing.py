"""Pricing: rules with their versions, runs with their targets, shops, what was written, what was found afterwards."""

import sqlalchemy as sa
from alembic import op

from automation_pipeline.storage.types import BigId, Json, TextList, UtcDateTime

revision = "0008_pricing"
down_revision = "0007_edges"


def upgrade() -> None:
    op.create_table(
        "pricing_alerts",
        sa.Column("id", BigId, nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("raised_at", UtcDateTime(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.Column("next_retry_at", UtcDateTime(), nullable=False),
        sa.Column("sent_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint("severity IN ('warning', 'critical')", name=op.f("ck_pricing_alerts_severity")),
        sa.CheckConstraint("status IN ('pending', 'sent', 'failed', 'unsent')", name=op.f("ck_pricing_alerts_status")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pricing_alerts")),
    )
    op.create_index("ix_pricing_alerts_status_next_retry_at", "pricing_alerts", ["status", "next_retry_at"])
    op.create_index(
        "ix_pricing_alerts_tenant_id_project_id_name_raised_at",
        "pricing_alerts",
        ["tenant_id", "project_id", "name", "raised_at"],
    )

    op.create_table(
        "pricing_policies",
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("document", Json, nullable=False),
        sa.Column("updated_by", sa.String(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "project_id", name=op.f("pk_pricing_policies")),
    )
    op.create_table(
        "pricing_rules",
        sa.Column("id", BigId, nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("selector_json", Json, nullable=False),
        sa.Column("transform_json", Json, nullable=False),
        sa.Column("currency", sa.String(), nullable=True),
        sa.Column("on_drift", sa.String(), nullable=False),
        sa.Column("cooldown_minutes", sa.Integer(), nullable=False),
        sa.Column("schedule_at", UtcDateTime(), nullable=True),
        sa.Column("ends_at", UtcDateTime(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("version_hash", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("deleted_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pricing_rules")),
    )
    op.create_index(
        "ix_pricing_rules_planned",
        "pricing_rules",
        ["schedule_at"],
        postgresql_where=sa.text("schedule_at IS NOT NULL OR ends_at IS NOT NULL"),
        sqlite_where=sa.text("schedule_at IS NOT NULL OR ends_at IS NOT NULL"),
    )
    op.create_index(
        "ix_pricing_rules_tenant_id_project_id_enabled", "pricing_rules", ["tenant_id", "project_id", "enabled"]
    )

    op.create_table(
        "pricing_shops",
        sa.Column("shop", sa.String(), nullable=False),
        sa.Column("circuit", sa.String(), nullable=False),
        sa.Column("throttles", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("until", UtcDateTime(), nullable=True),
        sa.Column("available", sa.Float(precision=53), nullable=False),
        sa.Column("maximum", sa.Float(precision=53), nullable=False),
        sa.Column("restore_rate", sa.Float(precision=53), nullable=False),
        sa.Column("pending", sa.Float(precision=53), nullable=False),
        sa.Column("measured_at", UtcDateTime(), nullable=False),
        sa.Column("heard_at", UtcDateTime(), nullable=True),
        sa.Column("refusals", Json, nullable=False),
        sa.Column("paused_at", UtcDateTime(), nullable=True),
        sa.Column("paused_by", sa.String(), nullable=True),
        sa.Column("pause_reason", sa.String(), nullable=True),
        sa.CheckConstraint("circuit IN ('closed', 'open', 'half_open')", name=op.f("ck_pricing_shops_circuit")),
        sa.PrimaryKeyConstraint("shop", name=op.f("pk_pricing_shops")),
    )
    op.create_table(
        "pricing_rule_versions",
        sa.Column("id", BigId, nullable=False),
        sa.Column("rule_id", BigId, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("version_hash", sa.String(), nullable=False),
        sa.Column("document", Json, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rule_id"], ["pricing_rules.id"], name=op.f("fk_pricing_rule_versions_rule_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pricing_rule_versions")),
        sa.UniqueConstraint("rule_id", "version", name=op.f("uq_pricing_rule_versions_rule_id_version")),
    )
    op.create_table(
        "rule_runs",
        sa.Column("id", BigId, nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("rule_id", BigId, nullable=False),
        sa.Column("rule_version", sa.Integer(), nullable=False),
        sa.Column("rule_version_hash", sa.String(), nullable=False),
        sa.Column("shop", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("trigger", sa.String(), nullable=False),
        sa.Column("wish", sa.String(), nullable=True),
        sa.Column("parent_run_id", BigId, nullable=True),
        sa.Column("scheduled_for", UtcDateTime(), nullable=True),
        sa.Column("previewed_at", UtcDateTime(), nullable=True),
        sa.Column("queued_at", UtcDateTime(), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("resume_at", UtcDateTime(), nullable=True),
        sa.Column("retry_cycle", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("approved_by", sa.String(), nullable=True),
        sa.Column("approved_at", UtcDateTime(), nullable=True),
        sa.Column("queued_by", sa.String(), nullable=True),
        sa.Column("cancel_requested_at", UtcDateTime(), nullable=True),
        sa.Column("cancelled_by", sa.String(), nullable=True),
        sa.Column("rollback_state", sa.String(), nullable=False),
        sa.Column("rollbacks", sa.Integer(), nullable=False),
        sa.Column("rollback_force", sa.Boolean(), nullable=False),
        sa.Column("promotion_ended_at", UtcDateTime(), nullable=True),
        sa.Column("wished_by", sa.String(), nullable=True),
        sa.Column("matched", sa.Integer(), nullable=False),
        sa.Column("total_targets", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("blocked", sa.Integer(), nullable=False),
        sa.Column("error_type", sa.String(), nullable=True),
        sa.Column("error_message", sa.String(), nullable=True),
        sa.Column("explain_json", Json, nullable=True),
        sa.Column("metadata", Json, nullable=True),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("dagster_run_id", sa.String(), nullable=True),
        sa.Column("lease_owner", sa.String(), nullable=True),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", UtcDateTime(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint(
            "finished_at IS NOT NULL OR status IN ('PREVIEW', 'QUEUED', 'APPLYING')",
            name=op.f("ck_rule_runs_ended_is_finished"),
        ),
        sa.CheckConstraint("rollback_state IN ('NONE', 'PARTIAL', 'DONE')", name=op.f("ck_rule_runs_rollback_state")),
        sa.CheckConstraint("status = 'PREVIEW' OR queued_at IS NOT NULL", name=op.f("ck_rule_runs_queued")),
        sa.CheckConstraint(
            "status IN ('PREVIEW', 'QUEUED', 'APPLYING', 'APPLIED', 'PARTIAL', 'FAILED', 'ROLLED_BACK')",
            name=op.f("ck_rule_runs_status"),
        ),
        sa.CheckConstraint("wish IS NULL OR wish IN ('apply', 'retry', 'rollback')", name=op.f("ck_rule_runs_wish")),
        sa.CheckConstraint(
            "finished_at IS NULL OR started_at <= finished_at", name=op.f("ck_rule_runs_started_before_finished")
        ),
        sa.CheckConstraint(
            "started_at IS NULL OR queued_at <= started_at", name=op.f("ck_rule_runs_queued_before_started")
        ),
        sa.ForeignKeyConstraint(["parent_run_id"], ["rule_runs.id"], name=op.f("fk_rule_runs_parent_run_id")),
        sa.ForeignKeyConstraint(["rule_id"], ["pricing_rules.id"], name=op.f("fk_rule_runs_rule_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rule_runs")),
        sa.UniqueConstraint("rule_id", "scheduled_for", name=op.f("uq_rule_runs_rule_id_scheduled_for")),
    )
    op.create_index(
        "ix_rule_runs_at_work",
        "rule_runs",
        ["id"],
        postgresql_where=sa.text("status IN ('QUEUED', 'APPLYING') OR wish IS NOT NULL"),
        sqlite_where=sa.text("status IN ('QUEUED', 'APPLYING') OR wish IS NOT NULL"),
    )
    op.create_index("ix_rule_runs_finished_at", "rule_runs", ["finished_at"])
    op.create_index("ix_rule_runs_parent_run_id", "rule_runs", ["parent_run_id"])
    op.create_index("ix_rule_runs_rule_id_status", "rule_runs", ["rule_id", "status"])
    op.create_index("ix_rule_runs_tenant_id_project_id_status", "rule_runs", ["tenant_id", "project_id", "status"])
    op.create_index(
        "uq_rule_runs_active_rule",
        "rule_runs",
        ["rule_id"],
        unique=True,
        postgresql_where=sa.text("status IN ('QUEUED', 'APPLYING')"),
        sqlite_where=sa.text("status IN ('QUEUED', 'APPLYING')"),
    )

    op.create_table(
        "rule_checks",
        sa.Column("id", BigId, nullable=False),
        sa.Column("rule_run_id", BigId, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("due_at", UtcDateTime(), nullable=False),
        sa.Column("requested_at", UtcDateTime(), nullable=True),
        sa.Column("checked_at", UtcDateTime(), nullable=True),
        sa.Column("total_checked", sa.Integer(), nullable=True),
        sa.Column("mismatches", sa.Integer(), nullable=True),
        sa.Column("unverified", sa.Integer(), nullable=True),
        sa.Column("worst", sa.String(), nullable=True),
        sa.Column("report", Json, nullable=True),
        sa.ForeignKeyConstraint(
            ["rule_run_id"], ["rule_runs.id"], name=op.f("fk_rule_checks_rule_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rule_checks")),
        sa.UniqueConstraint("rule_run_id", "name", name=op.f("uq_rule_checks_rule_run_id_name")),
    )
    op.create_index("ix_rule_checks_checked_at_due_at", "rule_checks", ["checked_at", "due_at"])

    op.create_table(
        "rule_skipped_variants",
        sa.Column("id", BigId, nullable=False),
        sa.Column("rule_run_id", BigId, nullable=False),
        sa.Column("product_id", sa.String(), nullable=False),
        sa.Column("variant_id", sa.String(), nullable=False),
        sa.Column("sku_id", sa.String(), nullable=True),
        sa.Column("title", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("checks", Json, nullable=True),
        sa.Column("current_amount", sa.BigInteger(), nullable=True),
        sa.Column("proposed_amount", sa.BigInteger(), nullable=True),
        sa.Column("currency", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rule_run_id"], ["rule_runs.id"], name=op.f("fk_rule_skipped_variants_rule_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rule_skipped_variants")),
    )
    op.create_index("ix_rule_skipped_variants_rule_run_id_reason", "rule_skipped_variants", ["rule_run_id", "reason"])

    op.create_table(
        "rule_targets",
        sa.Column("id", BigId, nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("rule_run_id", BigId, nullable=False),
        sa.Column("shop", sa.String(), nullable=False),
        sa.Column("product_id", sa.String(), nullable=False),
        sa.Column("variant_id", sa.String(), nullable=True),
        sa.Column("sku_id", sa.String(), nullable=True),
        sa.Column("title", sa.String(), nullable=True),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("before_json", Json, nullable=False),
        sa.Column("after_json", Json, nullable=False),
        sa.Column("writes_compare_at", sa.Boolean(), nullable=False),
        sa.Column("trace_json", Json, nullable=True),
        sa.Column("warnings", TextList, nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("is_wished", sa.Boolean(), nullable=False),
        sa.Column("is_writing", sa.Boolean(), nullable=False),
        sa.Column("outcome_unknown", sa.Boolean(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("rate_limit_waits", sa.Integer(), nullable=False),
        sa.Column("rate_limit_seconds", sa.Float(precision=53), nullable=False),
        sa.Column("began_at", UtcDateTime(), nullable=True),
        sa.Column("last_attempt", UtcDateTime(), nullable=True),
        sa.Column("next_attempt_at", UtcDateTime(), nullable=True),
        sa.Column("applied_at", UtcDateTime(), nullable=True),
        sa.Column("rolled_back_at", UtcDateTime(), nullable=True),
        sa.Column("error_message", sa.String(), nullable=True),
        sa.Column("error_type", sa.String(), nullable=True),
        sa.Column("error_retryable", sa.Boolean(), nullable=True),
        sa.Column("acknowledged_at", UtcDateTime(), nullable=True),
        sa.Column("acknowledged_by", sa.String(), nullable=True),
        sa.Column("external_request_id", sa.String(), nullable=True),
        sa.Column("observed_price", Json, nullable=True),
        sa.Column("duration_ms", sa.Integer(), nullable=True),
        sa.CheckConstraint(
            "NOT is_writing OR status IN ('APPLYING', 'APPLIED')", name=op.f("ck_rule_targets_is_writing")
        ),
        sa.CheckConstraint(
            "attempts >= 0 AND (attempts <= 3 OR status = 'FAILED')", name=op.f("ck_rule_targets_attempts")
        ),
        sa.CheckConstraint("status <> 'APPLIED' OR applied_at IS NOT NULL", name=op.f("ck_rule_targets_applied_at")),
        sa.CheckConstraint("status <> 'FAILED' OR error_type IS NOT NULL", name=op.f("ck_rule_targets_error_type")),
        sa.CheckConstraint(
            "status IN ('PREVIEW', 'QUEUED', 'APPLYING', 'APPLIED', 'FAILED', 'ROLLED_BACK')",
            name=op.f("ck_rule_targets_status"),
        ),
        sa.ForeignKeyConstraint(
            ["rule_run_id"], ["rule_runs.id"], name=op.f("fk_rule_targets_rule_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rule_targets")),
        sa.UniqueConstraint(
            "rule_run_id", "variant_id", "currency", name=op.f("uq_rule_targets_rule_run_id_variant_id_currency")
        ),
    )
    op.create_index(
        "ix_rule_targets_failed",
        "rule_targets",
        ["project_id", "last_attempt"],
        postgresql_where=sa.text("status = 'FAILED'"),
        sqlite_where=sa.text("status = 'FAILED'"),
    )
    op.create_index(
        "ix_rule_targets_rule_run_id_status_next_attempt_at",
        "rule_targets",
        ["rule_run_id", "status", "next_attempt_at"],
    )
    op.create_index("ix_rule_targets_shop_variant_id_status", "rule_targets", ["shop", "variant_id", "status"])
    op.create_index(
        "uq_rule_targets_writing",
        "rule_targets",
        ["shop", "variant_id"],
        unique=True,
        postgresql_where=sa.text("is_writing"),
        sqlite_where=sa.text("is_writing"),
    )

    op.create_table(
        "price_changes",
        sa.Column("id", BigId, nullable=False),
        sa.Column("event_key", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("shop", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("rule_run_id", BigId, nullable=False),
        sa.Column("target_id", BigId, nullable=False),
        sa.Column("product_id", sa.String(), nullable=False),
        sa.Column("variant_id", sa.String(), nullable=False),
        sa.Column("sku_id", sa.String(), nullable=True),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("from_amount", sa.BigInteger(), nullable=False),
        sa.Column("to_amount", sa.BigInteger(), nullable=False),
        sa.Column("compare_at_old", sa.BigInteger(), nullable=True),
        sa.Column("compare_at_new", sa.BigInteger(), nullable=True),
        sa.Column("was_found", sa.Boolean(), nullable=False),
        sa.Column("applied_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("kind IN ('apply', 'rollback')", name=op.f("ck_price_changes_kind")),
        sa.ForeignKeyConstraint(
            ["rule_run_id"], ["rule_runs.id"], name=op.f("fk_price_changes_rule_run_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["target_id"], ["rule_targets.id"], name=op.f("fk_price_changes_target_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_price_changes")),
        sa.UniqueConstraint("event_key", name=op.f("uq_price_changes_event_key")),
    )
    op.create_index("ix_price_changes_rule_run_id", "price_changes", ["rule_run_id"])
    op.create_index(
        "ix_price_changes_shop_variant_id_applied_at", "price_changes", ["shop", "variant_id", "applied_at"]
    )
    op.create_index("ix_price_changes_target_id", "price_changes", ["target_id"])
    op.create_index(
        "ix_price_changes_tenant_id_project_id_applied_at", "price_changes", ["tenant_id", "project_id", "applied_at"]
    )
