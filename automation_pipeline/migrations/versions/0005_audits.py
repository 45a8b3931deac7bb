"""Audits."""

import sqlalchemy as sa
from alembic import op

from automation_pipeline.storage.types import BigId, Json, TextList, UtcDateTime

revision = "0005_audits"
down_revision = "0004_transcription"


def upgrade() -> None:
    op.create_table(
        "audit_config_snapshots",
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("document", Json, nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("pk_audit_config_snapshots")),
    )
    op.create_table(
        "audit_configs",
        sa.Column("id", BigId, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("system_prompt", sa.String(), nullable=True),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("run_automatically", sa.Boolean(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_configs")),
    )
    op.create_index("ix_audit_configs_created_at", "audit_configs", ["created_at"])
    op.create_index("ix_audit_configs_is_active", "audit_configs", ["is_active"])
    op.create_index("ix_audit_configs_run_automatically", "audit_configs", ["run_automatically"])

    op.create_table(
        "audit_batches",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("audit_config_id", BigId, nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("succeeded", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("trigger_user_id", sa.String(), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("completed_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["audit_config_id"],
            ["audit_configs.id"],
            name=op.f("fk_audit_batches_audit_config_id"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_batches")),
    )
    op.create_index("ix_audit_batches_completed_at", "audit_batches", ["completed_at"])

    op.create_table(
        "audit_steps",
        sa.Column("id", BigId, nullable=False),
        sa.Column("audit_config_id", BigId, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("prompt", sa.String(), nullable=False),
        sa.Column("control_points", TextList, nullable=False),
        sa.Column("keywords", TextList, nullable=False),
        sa.Column("severity_level", sa.String(), nullable=False),
        sa.Column("is_critical", sa.Boolean(), nullable=False),
        sa.Column("chronological_important", sa.Boolean(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("verify_product_info", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "severity_level IN ('LOW', 'MEDIUM', 'HIGH', 'CRITICAL')", name=op.f("ck_audit_steps_severity_level")
        ),
        sa.CheckConstraint("position >= 1", name=op.f("ck_audit_steps_position")),
        sa.CheckConstraint("weight BETWEEN 1 AND 10", name=op.f("ck_audit_steps_weight")),
        sa.ForeignKeyConstraint(
            ["audit_config_id"], ["audit_configs.id"], name=op.f("fk_audit_steps_audit_config_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_steps")),
        sa.UniqueConstraint("audit_config_id", "position", name=op.f("uq_audit_steps_audit_config_id_position")),
    )
    op.create_table(
        "audit_batch_items",
        sa.Column("id", BigId, nullable=False),
        sa.Column("batch_id", sa.String(), nullable=False),
        sa.Column("fiche_id", sa.String(), nullable=False),
        sa.Column("tracking_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.CheckConstraint("state IN ('pending', 'completed', 'failed')", name=op.f("ck_audit_batch_items_state")),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["audit_batches.id"], name=op.f("fk_audit_batch_items_batch_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_batch_items")),
        sa.UniqueConstraint("batch_id", "fiche_id", name=op.f("uq_audit_batch_items_batch_id_fiche_id")),
        sa.UniqueConstraint("tracking_id", name=op.f("uq_audit_batch_items_tracking_id")),
    )
    op.create_index("ix_audit_batch_items_state", "audit_batch_items", ["state"])

    op.create_table(
        "audits",
        sa.Column("id", BigId, nullable=False),
        sa.Column("tracking_id", sa.String(), nullable=False),
        sa.Column("fiche_cache_id", BigId, nullable=False),
        sa.Column("audit_config_id", BigId, nullable=False),
        sa.Column("config_fingerprint", sa.String(), nullable=False),
        sa.Column("automation_schedule_id", BigId, nullable=True),
        sa.Column("automation_run_id", BigId, nullable=True),
        sa.Column("trigger_source", sa.String(), nullable=True),
        sa.Column("trigger_user_id", sa.String(), nullable=True),
        sa.Column("notes", sa.String(), nullable=True),
        sa.Column("deleted_at", UtcDateTime(), nullable=True),
        sa.Column("overall_score", sa.Numeric(precision=5, scale=2), nullable=False),
        sa.Column("score_percentage", sa.Numeric(precision=5, scale=2), nullable=False),
        sa.Column("niveau", sa.String(), nullable=False),
        sa.Column("is_compliant", sa.Boolean(), nullable=False),
        sa.Column("critical_passed", sa.Integer(), nullable=False),
        sa.Column("critical_total", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("completed_at", UtcDateTime(), nullable=True),
        sa.Column("duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("error_message", sa.String(), nullable=True),
        sa.Column("total_tokens", sa.BigInteger(), nullable=True),
        sa.Column("total_steps", sa.Integer(), nullable=False),
        sa.Column("successful_steps", sa.Integer(), nullable=True),
        sa.Column("failed_steps", sa.Integer(), nullable=True),
        sa.Column("recordings_count", sa.Integer(), nullable=True),
        sa.Column("timeline_chunks", sa.Integer(), nullable=True),
        sa.Column("result_data", Json, nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("is_latest", sa.Boolean(), nullable=False),
        sa.Column("use_rlm", sa.Boolean(), nullable=False),
        sa.Column("transcript_mode", sa.String(), nullable=False),
        sa.Column("gating", Json, nullable=True),
        sa.Column("dagster_run_id", sa.String(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("touched_at", UtcDateTime(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("status IN ('pending', 'running', 'completed', 'failed')", name=op.f("ck_audits_status")),
        sa.CheckConstraint("NOT (is_latest AND deleted_at IS NOT NULL)", name=op.f("ck_audits_latest")),
        sa.ForeignKeyConstraint(
            ["audit_config_id"], ["audit_configs.id"], name=op.f("fk_audits_audit_config_id"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["automation_run_id"], ["automation_runs.id"], name=op.f("fk_audits_automation_run_id"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["automation_schedule_id"],
            ["automation_schedules.id"],
            name=op.f("fk_audits_automation_schedule_id"),
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["config_fingerprint"], ["audit_config_snapshots.fingerprint"], name=op.f("fk_audits_config_fingerprint")
        ),
        sa.ForeignKeyConstraint(
            ["fiche_cache_id"], ["fiche_cache.id"], name=op.f("fk_audits_fiche_cache_id"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audits")),
        sa.UniqueConstraint("tracking_id", name=op.f("uq_audits_tracking_id")),
    )
    op.create_index("ix_audits_audit_config_id", "audits", ["audit_config_id"])
    op.create_index("ix_audits_automation_run_id", "audits", ["automation_run_id"])
    op.create_index("ix_audits_automation_schedule_id", "audits", ["automation_schedule_id"])
    op.create_index("ix_audits_created_at", "audits", ["created_at"])
    op.create_index("ix_audits_deleted_at", "audits", ["deleted_at"])
    op.create_index(
        "ix_audits_fiche_cache_id_audit_config_id_version", "audits", ["fiche_cache_id", "audit_config_id", "version"]
    )
    op.create_index("ix_audits_is_compliant", "audits", ["is_compliant"])
    op.create_index(
        "ix_audits_running",
        "audits",
        ["touched_at"],
        postgresql_where=sa.text("status = 'running'"),
        sqlite_where=sa.text("status = 'running'"),
    )
    op.create_index("ix_audits_status", "audits", ["status"])
    op.create_index("ix_audits_trigger_source", "audits", ["trigger_source"])
    op.create_index(
        "uq_audits_latest",
        "audits",
        ["fiche_cache_id", "audit_config_id"],
        unique=True,
        postgresql_where=sa.text("is_latest"),
        sqlite_where=sa.text("is_latest"),
    )

    op.create_table(
        "audit_step_result_human_reviews",
        sa.Column("id", BigId, nullable=False),
        sa.Column("audit_id", BigId, nullable=False),
        sa.Column("step_position", sa.Integer(), nullable=False),
        sa.Column("reviewed_at", UtcDateTime(), nullable=False),
        sa.Column("reviewer", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("control_point_index", sa.Integer(), nullable=True),
        sa.Column("point", sa.String(), nullable=True),
        sa.Column("previous_traite", sa.Boolean(), nullable=True),
        sa.Column("override_traite", sa.Boolean(), nullable=True),
        sa.Column("previous_conforme", sa.String(), nullable=True),
        sa.Column("override_conforme", sa.String(), nullable=True),
        sa.Column("previous_score", sa.Integer(), nullable=True),
        sa.Column("override_score", sa.Integer(), nullable=True),
        sa.Column("previous_niveau_conformite", sa.String(), nullable=True),
        sa.Column("override_niveau_conformite", sa.String(), nullable=True),
        sa.Column("previous_statut", sa.String(), nullable=True),
        sa.Column("override_statut", sa.String(), nullable=True),
        sa.Column("previous_commentaire", sa.String(), nullable=True),
        sa.Column("override_commentaire", sa.String(), nullable=True),
        sa.CheckConstraint("kind IN ('step', 'control_point')", name=op.f("ck_audit_step_result_human_reviews_kind")),
        sa.ForeignKeyConstraint(
            ["audit_id"], ["audits.id"], name=op.f("fk_audit_step_result_human_reviews_audit_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_step_result_human_reviews")),
    )
    op.create_index(
        "ix_audit_step_result_human_reviews_audit_id_step_position",
        "audit_step_result_human_reviews",
        ["audit_id", "step_position"],
    )

    op.create_table(
        "audit_step_result_rerun_events",
        sa.Column("id", BigId, nullable=False),
        sa.Column("audit_id", BigId, nullable=False),
        sa.Column("step_position", sa.Integer(), nullable=False),
        sa.Column("occurred_at", UtcDateTime(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("rerun_id", sa.String(), nullable=True),
        sa.Column("event_id", sa.String(), nullable=True),
        sa.Column("custom_prompt", sa.String(), nullable=True),
        sa.Column("control_point_index", sa.Integer(), nullable=True),
        sa.Column("point", sa.String(), nullable=True),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("previous", Json, nullable=False),
        sa.Column("next", Json, nullable=False),
        sa.CheckConstraint(
            "kind IN ('step_rerun', 'control_point_rerun', 'unknown')",
            name=op.f("ck_audit_step_result_rerun_events_kind"),
        ),
        sa.ForeignKeyConstraint(
            ["audit_id"], ["audits.id"], name=op.f("fk_audit_step_result_rerun_events_audit_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_step_result_rerun_events")),
        sa.UniqueConstraint("rerun_id", name=op.f("uq_audit_step_result_rerun_events_rerun_id")),
    )
    op.create_index(
        "ix_audit_step_result_rerun_events_audit_id_step_position",
        "audit_step_result_rerun_events",
        ["audit_id", "step_position"],
    )

    op.create_table(
        "audit_step_results",
        sa.Column("id", BigId, nullable=False),
        sa.Column("audit_id", BigId, nullable=False),
        sa.Column("step_position", sa.Integer(), nullable=False),
        sa.Column("step_name", sa.String(), nullable=False),
        sa.Column("severity_level", sa.String(), nullable=False),
        sa.Column("is_critical", sa.Boolean(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("traite", sa.Boolean(), nullable=False),
        sa.Column("conforme", sa.String(), nullable=False),
        sa.Column("score", sa.Integer(), nullable=False),
        sa.Column("niveau_conformite", sa.String(), nullable=False),
        sa.Column("commentaire_global", sa.String(), nullable=False),
        sa.Column("mots_cles_trouves", TextList, nullable=False),
        sa.Column("minutages", TextList, nullable=False),
        sa.Column("erreurs_transcription_tolerees", sa.Integer(), nullable=False),
        sa.Column("total_citations", sa.Integer(), nullable=False),
        sa.Column("total_tokens", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("raw_result", Json, nullable=False),
        sa.Column("analysed_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint(
            "conforme IN ('CONFORME', 'PARTIEL', 'NON_CONFORME')", name=op.f("ck_audit_step_results_conforme")
        ),
        sa.ForeignKeyConstraint(
            ["audit_id"], ["audits.id"], name=op.f("fk_audit_step_results_audit_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_step_results")),
        sa.UniqueConstraint("audit_id", "step_position", name=op.f("uq_audit_step_results_audit_id_step_position")),
    )
    op.create_index("ix_audit_step_results_conforme", "audit_step_results", ["conforme"])

    op.create_table(
        "audit_step_result_control_points",
        sa.Column("id", BigId, nullable=False),
        sa.Column("audit_id", BigId, nullable=False),
        sa.Column("step_position", sa.Integer(), nullable=False),
        sa.Column("control_point_index", sa.Integer(), nullable=False),
        sa.Column("point", sa.String(), nullable=False),
        sa.Column("statut", sa.String(), nullable=False),
        sa.Column("commentaire", sa.String(), nullable=False),
        sa.Column("minutages", TextList, nullable=False),
        sa.Column("erreur_transcription_notee", sa.Boolean(), nullable=False),
        sa.Column("variation_phonetique_utilisee", sa.String(), nullable=True),
        sa.CheckConstraint(
            "statut IN ('PRESENT', 'ABSENT', 'PARTIEL', 'NON_APPLICABLE')",
            name=op.f("ck_audit_step_result_control_points_statut"),
        ),
        sa.ForeignKeyConstraint(
            ["audit_id", "step_position"],
            ["audit_step_results.audit_id", "audit_step_results.step_position"],
            name=op.f("fk_audit_step_result_control_points_audit_id_step_position"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_step_result_control_points")),
        sa.UniqueConstraint(
            "audit_id", "step_position", "control_point_index", name="uq_audit_step_result_control_points_place"
        ),
    )
    op.create_table(
        "audit_step_result_citations",
        sa.Column("id", BigId, nullable=False),
        sa.Column("audit_id", BigId, nullable=False),
        sa.Column("step_position", sa.Integer(), nullable=False),
        sa.Column("control_point_index", sa.Integer(), nullable=False),
        sa.Column("citation_index", sa.Integer(), nullable=False),
        sa.Column("texte", sa.String(), nullable=False),
        sa.Column("minutage", sa.String(), nullable=False),
        sa.Column("minutage_secondes", sa.Float(), nullable=False),
        sa.Column("speaker", sa.String(), nullable=False),
        sa.Column("recording_index", sa.Integer(), nullable=False),
        sa.Column("chunk_index", sa.Integer(), nullable=False),
        sa.Column("recording_date", sa.String(), nullable=False),
        sa.Column("recording_time", sa.String(), nullable=False),
        sa.Column("recording_url", sa.String(), nullable=False),
        sa.Column("call_id", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["audit_id", "step_position", "control_point_index"],
            [
                "audit_step_result_control_points.audit_id",
                "audit_step_result_control_points.step_position",
                "audit_step_result_control_points.control_point_index",
            ],
            name="fk_audit_step_result_citations_control_point",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_step_result_citations")),
        sa.UniqueConstraint(
            "audit_id",
            "step_position",
            "control_point_index",
            "citation_index",
            name="uq_audit_step_result_citations_place",
        ),
    )
