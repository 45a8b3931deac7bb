"""Tables of audits: configurations, audits, step results, reviews, reruns and batches.

A fiche has one latest audit per configuration: a partial unique index keeps that.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Numeric,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.types import BigId, Json, JsonObject, Table, TextList, UtcDateTime

_LATEST = text("is_latest")
_RUNNING = text("status = 'running'")


class ConfigSnapshotRow(Table):
    """A configuration as audits used it. Audits with equal configurations share one row."""

    __tablename__ = "audit_config_snapshots"

    fingerprint: Mapped[str] = mapped_column(primary_key=True)
    document: Mapped[JsonObject] = mapped_column(Json)


class AuditRow(Table):
    """A request with the same `tracking_id` continues the same audit.

    `fence` is the token of the claim on the audit; a worker with a lower token cannot write. Only a
    completed audit has scores and `is_compliant`. `coverage` says which recordings the audit needs
    and which of them have a transcript; `timeline_fingerprint` identifies their words.
    """

    __tablename__ = "audits"
    __table_args__ = (
        CheckConstraint(
            "status IN ('pending', 'running', 'completed', 'incomplete', 'failed')", name="status"
        ),
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
    audit_config_id: Mapped[int] = mapped_column(
        ForeignKey("audit_configs.id", ondelete="RESTRICT"), index=True
    )
    config_fingerprint: Mapped[str] = mapped_column(
        ForeignKey("audit_config_snapshots.fingerprint")
    )
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


class AuditBatchRow(Table):
    __tablename__ = "audit_batches"

    id: Mapped[str] = mapped_column(primary_key=True)
    audit_config_id: Mapped[int] = mapped_column(
        ForeignKey("audit_configs.id", ondelete="RESTRICT")
    )
    total: Mapped[int]
    succeeded: Mapped[int]
    failed: Mapped[int]
    trigger_user_id: Mapped[str | None]
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    completed_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)


class AuditBatchItemRow(Table):
    """A fiche of a batch. Its audit has the item's `tracking_id`, if it has started."""

    __tablename__ = "audit_batch_items"
    __table_args__ = (
        UniqueConstraint("batch_id", "fiche_id"),
        CheckConstraint("state IN ('pending', 'completed', 'failed')", name="state"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    batch_id: Mapped[str] = mapped_column(ForeignKey("audit_batches.id", ondelete="CASCADE"))
    fiche_id: Mapped[str]
    tracking_id: Mapped[str] = mapped_column(unique=True)
    state: Mapped[str] = mapped_column(index=True)
    error: Mapped[str | None]
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class AuditConfigRow(Table):
    __tablename__ = "audit_configs"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str]
    description: Mapped[str | None]
    system_prompt: Mapped[str | None]
    is_active: Mapped[bool] = mapped_column(index=True)
    run_automatically: Mapped[bool] = mapped_column(index=True)
    created_by: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class AuditStepRow(Table):
    __tablename__ = "audit_steps"
    __table_args__ = (
        UniqueConstraint("audit_config_id", "position"),
        CheckConstraint("position >= 1", name="position"),
        CheckConstraint("weight BETWEEN 1 AND 10", name="weight"),
        CheckConstraint(
            "severity_level IN ('LOW', 'MEDIUM', 'HIGH', 'CRITICAL')", name="severity_level"
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    audit_config_id: Mapped[int] = mapped_column(ForeignKey("audit_configs.id", ondelete="CASCADE"))
    position: Mapped[int]
    name: Mapped[str]
    description: Mapped[str | None]
    prompt: Mapped[str]
    control_points: Mapped[Sequence[str]] = mapped_column(TextList)
    keywords: Mapped[Sequence[str]] = mapped_column(TextList)
    severity_level: Mapped[str]
    is_critical: Mapped[bool]
    chronological_important: Mapped[bool]
    weight: Mapped[int]
    verify_product_info: Mapped[bool]


class StepResultRow(Table):
    """A step after gating, reruns and reviews. A step with an `error` could not be judged and has no
    verdict."""

    __tablename__ = "audit_step_results"
    __table_args__ = (
        UniqueConstraint("audit_id", "step_position"),
        CheckConstraint("conforme IN ('CONFORME', 'PARTIEL', 'NON_CONFORME')", name="conforme"),
        CheckConstraint(
            "error IS NULL AND conforme IS NOT NULL AND score IS NOT NULL OR error IS NOT NULL AND conforme IS NULL"
            " AND score IS NULL",
            name="verdict",
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    audit_id: Mapped[int] = mapped_column(ForeignKey("audits.id", ondelete="CASCADE"))
    step_position: Mapped[int]
    step_name: Mapped[str]
    severity_level: Mapped[str]
    is_critical: Mapped[bool]
    weight: Mapped[int]
    traite: Mapped[bool]
    conforme: Mapped[str | None] = mapped_column(index=True)
    score: Mapped[int | None]
    niveau_conformite: Mapped[str | None]
    commentaire_global: Mapped[str]
    mots_cles_trouves: Mapped[Sequence[str]] = mapped_column(TextList)
    minutages: Mapped[Sequence[str]] = mapped_column(TextList)
    erreurs_transcription_tolerees: Mapped[int]
    total_citations: Mapped[int]
    total_tokens: Mapped[int] = mapped_column(BigInteger)
    error: Mapped[str | None]
    raw_result: Mapped[JsonObject] = mapped_column(Json)
    analysed_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ControlPointRow(Table):
    __tablename__ = "audit_step_result_control_points"
    __table_args__ = (
        UniqueConstraint(
            "audit_id",
            "step_position",
            "control_point_index",
            name="uq_audit_step_result_control_points_place",
        ),
        ForeignKeyConstraint(
            ["audit_id", "step_position"],
            ["audit_step_results.audit_id", "audit_step_results.step_position"],
            ondelete="CASCADE",
        ),
        CheckConstraint(
            "statut IN ('PRESENT', 'ABSENT', 'PARTIEL', 'NON_APPLICABLE')", name="statut"
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    audit_id: Mapped[int] = mapped_column(BigId)
    step_position: Mapped[int]
    control_point_index: Mapped[int]
    point: Mapped[str]
    statut: Mapped[str]
    commentaire: Mapped[str]
    minutages: Mapped[Sequence[str]] = mapped_column(TextList)
    erreur_transcription_notee: Mapped[bool]
    variation_phonetique_utilisee: Mapped[str | None]


class CitationRow(Table):
    """`recording_index` and `chunk_index` count from 0 and may shift; `call_id` does not."""

    __tablename__ = "audit_step_result_citations"
    __table_args__ = (
        UniqueConstraint(
            "audit_id",
            "step_position",
            "control_point_index",
            "citation_index",
            name="uq_audit_step_result_citations_place",
        ),
        ForeignKeyConstraint(
            ["audit_id", "step_position", "control_point_index"],
            [
                "audit_step_result_control_points.audit_id",
                "audit_step_result_control_points.step_position",
                "audit_step_result_control_points.control_point_index",
            ],
            ondelete="CASCADE",
            name="fk_audit_step_result_citations_control_point",
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    audit_id: Mapped[int] = mapped_column(BigId)
    step_position: Mapped[int]
    control_point_index: Mapped[int]
    citation_index: Mapped[int]
    texte: Mapped[str]
    minutage: Mapped[str]
    minutage_secondes: Mapped[float]
    speaker: Mapped[str]
    recording_index: Mapped[int]
    chunk_index: Mapped[int]
    recording_date: Mapped[str]
    recording_time: Mapped[str]
    recording_url: Mapped[str]
    call_id: Mapped[str | None]


class HumanReviewRow(Table):
    __tablename__ = "audit_step_result_human_reviews"
    __table_args__ = (
        CheckConstraint("kind IN ('step', 'control_point')", name="kind"),
        Index(None, "audit_id", "step_position"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    audit_id: Mapped[int] = mapped_column(ForeignKey("audits.id", ondelete="CASCADE"))
    step_position: Mapped[int]
    reviewed_at: Mapped[datetime] = mapped_column(UtcDateTime)
    reviewer: Mapped[str | None]
    reason: Mapped[str | None]
    kind: Mapped[str]
    control_point_index: Mapped[int | None]
    point: Mapped[str | None]
    previous_traite: Mapped[bool | None]
    override_traite: Mapped[bool | None]
    previous_conforme: Mapped[str | None]
    override_conforme: Mapped[str | None]
    previous_score: Mapped[int | None]
    override_score: Mapped[int | None]
    previous_niveau_conformite: Mapped[str | None]
    override_niveau_conformite: Mapped[str | None]
    previous_statut: Mapped[str | None]
    override_statut: Mapped[str | None]
    previous_commentaire: Mapped[str | None]
    override_commentaire: Mapped[str | None]


class RerunEventRow(Table):
    """`rerun_id` is unique, so that a rerun counts once when Dagster retries it."""

    __tablename__ = "audit_step_result_rerun_events"
    __table_args__ = (
        CheckConstraint("kind IN ('step_rerun', 'control_point_rerun', 'unknown')", name="kind"),
        Index(None, "audit_id", "step_position"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    audit_id: Mapped[int] = mapped_column(ForeignKey("audits.id", ondelete="CASCADE"))
    step_position: Mapped[int]
    occurred_at: Mapped[datetime] = mapped_column(UtcDateTime)
    kind: Mapped[str]
    rerun_id: Mapped[str | None] = mapped_column(unique=True)
    event_id: Mapped[str | None]
    custom_prompt: Mapped[str | None]
    control_point_index: Mapped[int | None]
    point: Mapped[str | None]
    tokens: Mapped[int]
    previous: Mapped[JsonObject] = mapped_column(Json)
    next: Mapped[JsonObject] = mapped_column(Json)
