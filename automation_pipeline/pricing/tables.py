"""Tables of pricing: rules and guardrails, runs and targets, price changes, shops, checks,
alerts."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, Float, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.types import BigId, Json, JsonObject, Table, TextList, UtcDateTime

_PLANNED = text("schedule_at IS NOT NULL OR ends_at IS NOT NULL")


class RuleRow(Table):
    """The current state of a rule. A deleted rule is disabled and kept, because runs refer to it."""

    __tablename__ = "pricing_rules"
    __table_args__ = (
        Index(None, "tenant_id", "project_id", "enabled"),
        Index(
            "ix_pricing_rules_planned",
            "schedule_at",
            postgresql_where=_PLANNED,
            sqlite_where=_PLANNED,
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    tenant_id: Mapped[str]
    project_id: Mapped[str]
    name: Mapped[str]
    description: Mapped[str | None]
    enabled: Mapped[bool]
    selector_json: Mapped[JsonObject] = mapped_column(Json)
    transform_json: Mapped[JsonObject] = mapped_column(Json)
    currency: Mapped[str | None]
    on_drift: Mapped[str]
    cooldown_minutes: Mapped[int]
    # Cleared when its run exists.
    schedule_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ends_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    version: Mapped[int]
    version_hash: Mapped[str]
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class RuleVersionRow(Table):
    """The document of the rule at the start of a version. Rows never change."""

    __tablename__ = "pricing_rule_versions"
    __table_args__ = (UniqueConstraint("rule_id", "version"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    rule_id: Mapped[int] = mapped_column(ForeignKey("pricing_rules.id", ondelete="CASCADE"))
    version: Mapped[int]
    version_hash: Mapped[str]
    document: Mapped[JsonObject] = mapped_column(Json)
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class PricingPolicyRow(Table):
    """A project's guardrails."""

    __tablename__ = "pricing_policies"

    tenant_id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(primary_key=True)
    document: Mapped[JsonObject] = mapped_column(Json)
    updated_by: Mapped[str]
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


_ACTIVE = text("status IN ('QUEUED', 'APPLYING')")
_AT_WORK = text("status IN ('QUEUED', 'APPLYING') OR wish IS NOT NULL")
_WRITING = text("is_writing")
_FAILED = text("status = 'FAILED'")


class RuleRunRow(Table):
    """`wish` is the requested action: apply, retry or rollback. A worker holds the claim until
    `lease_until`; each new claim has a higher `lease_token`."""

    __tablename__ = "rule_runs"
    __table_args__ = (
        CheckConstraint(
            "status IN ('PREVIEW', 'QUEUED', 'APPLYING', 'APPLIED', 'PARTIAL', 'FAILED', 'ROLLED_BACK')",
            name="status",
        ),
        CheckConstraint("wish IS NULL OR wish IN ('apply', 'retry', 'rollback')", name="wish"),
        CheckConstraint("rollback_state IN ('NONE', 'PARTIAL', 'DONE')", name="rollback_state"),
        CheckConstraint("status = 'PREVIEW' OR queued_at IS NOT NULL", name="queued"),
        CheckConstraint(
            "started_at IS NULL OR queued_at <= started_at", name="queued_before_started"
        ),
        CheckConstraint(
            "finished_at IS NULL OR started_at <= finished_at", name="started_before_finished"
        ),
        CheckConstraint(
            "finished_at IS NOT NULL OR status IN ('PREVIEW', 'QUEUED', 'APPLYING')",
            name="ended_is_finished",
        ),
        Index(
            "uq_rule_runs_active_rule",
            "rule_id",
            unique=True,
            postgresql_where=_ACTIVE,
            sqlite_where=_ACTIVE,
        ),
        UniqueConstraint("rule_id", "scheduled_for"),
        Index("ix_rule_runs_at_work", "id", postgresql_where=_AT_WORK, sqlite_where=_AT_WORK),
        Index(None, "tenant_id", "project_id", "status"),
        Index(None, "finished_at"),
        Index(None, "rule_id", "status"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    tenant_id: Mapped[str]
    project_id: Mapped[str]
    rule_id: Mapped[int] = mapped_column(ForeignKey("pricing_rules.id"))
    rule_version: Mapped[int]
    rule_version_hash: Mapped[str]
    shop: Mapped[str]
    status: Mapped[str]
    trigger: Mapped[str]
    wish: Mapped[str | None]
    parent_run_id: Mapped[int | None] = mapped_column(ForeignKey("rule_runs.id"), index=True)
    scheduled_for: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When the run was planned.
    previewed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    queued_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    resume_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    retry_cycle: Mapped[int] = mapped_column(default=0)
    created_by: Mapped[str]
    approved_by: Mapped[str | None]
    approved_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    queued_by: Mapped[str | None]
    cancel_requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    cancelled_by: Mapped[str | None]
    rollback_state: Mapped[str] = mapped_column(default="NONE")
    rollbacks: Mapped[int] = mapped_column(default=0)
    rollback_force: Mapped[bool] = mapped_column(default=False)
    # When the rollback at the end of the promotion was requested. Each target that is still applied
    # has the reason in its error columns.
    promotion_ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    wished_by: Mapped[str | None]
    matched: Mapped[int] = mapped_column(default=0)
    total_targets: Mapped[int] = mapped_column(default=0)
    skipped: Mapped[int] = mapped_column(default=0)
    blocked: Mapped[int] = mapped_column(default=0)
    error_type: Mapped[str | None]
    error_message: Mapped[str | None]
    explain_json: Mapped[JsonObject | None] = mapped_column(Json)
    run_metadata: Mapped[JsonObject | None] = mapped_column("metadata", Json)
    requests: Mapped[int] = mapped_column(default=0)
    dagster_run_id: Mapped[str | None]
    lease_owner: Mapped[str | None]
    lease_token: Mapped[int] = mapped_column(BigInteger, default=0)
    lease_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class RuleTargetRow(Table):
    """One variant of a run. The prices are those of the preview and never change. The unique index
    on `is_writing` lets one run at a time write the price of a variant."""

    __tablename__ = "rule_targets"
    __table_args__ = (
        CheckConstraint(
            "status IN ('PREVIEW', 'QUEUED', 'APPLYING', 'APPLIED', 'FAILED', 'ROLLED_BACK')",
            name="status",
        ),
        CheckConstraint("attempts >= 0 AND (attempts <= 3 OR status = 'FAILED')", name="attempts"),
        CheckConstraint("status <> 'APPLIED' OR applied_at IS NOT NULL", name="applied_at"),
        CheckConstraint("status <> 'FAILED' OR error_type IS NOT NULL", name="error_type"),
        CheckConstraint("NOT is_writing OR status IN ('APPLYING', 'APPLIED')", name="is_writing"),
        UniqueConstraint("rule_run_id", "variant_id", "currency"),
        Index(
            "uq_rule_targets_writing",
            "shop",
            "variant_id",
            unique=True,
            postgresql_where=_WRITING,
            sqlite_where=_WRITING,
        ),
        Index(None, "rule_run_id", "status", "next_attempt_at"),
        Index(None, "shop", "variant_id", "status"),
        Index(
            "ix_rule_targets_failed",
            "project_id",
            "last_attempt",
            postgresql_where=_FAILED,
            sqlite_where=_FAILED,
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    tenant_id: Mapped[str]
    project_id: Mapped[str]
    rule_run_id: Mapped[int] = mapped_column(ForeignKey("rule_runs.id", ondelete="CASCADE"))
    shop: Mapped[str]
    product_id: Mapped[str]
    variant_id: Mapped[str | None]
    sku_id: Mapped[str | None]
    title: Mapped[str | None]
    currency: Mapped[str]
    before_json: Mapped[JsonObject] = mapped_column(Json)
    after_json: Mapped[JsonObject] = mapped_column(Json)
    writes_compare_at: Mapped[bool]
    trace_json: Mapped[JsonObject | None] = mapped_column(Json)
    warnings: Mapped[Sequence[str]] = mapped_column(TextList)
    status: Mapped[str]
    # Marked for the requested retry or rollback.
    is_wished: Mapped[bool] = mapped_column(default=False)
    is_writing: Mapped[bool] = mapped_column(default=False)
    outcome_unknown: Mapped[bool] = mapped_column(default=False)
    attempts: Mapped[int] = mapped_column(default=0)
    rate_limit_waits: Mapped[int] = mapped_column(default=0)
    rate_limit_seconds: Mapped[float] = mapped_column(Float(53), default=0.0)
    began_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_attempt: Mapped[datetime | None] = mapped_column(UtcDateTime)
    next_attempt_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    applied_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    rolled_back_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    error_message: Mapped[str | None]
    error_type: Mapped[str | None]
    error_retryable: Mapped[bool | None]
    acknowledged_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    acknowledged_by: Mapped[str | None]
    external_request_id: Mapped[str | None]
    observed_price: Mapped[JsonObject | None] = mapped_column(Json)
    duration_ms: Mapped[int | None]


class SkippedVariantRow(Table):
    """A selected variant that the rule skips or that the project's guardrails block."""

    __tablename__ = "rule_skipped_variants"
    __table_args__ = (Index(None, "rule_run_id", "reason"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    rule_run_id: Mapped[int] = mapped_column(ForeignKey("rule_runs.id", ondelete="CASCADE"))
    product_id: Mapped[str]
    variant_id: Mapped[str]
    sku_id: Mapped[str | None]
    title: Mapped[str | None]
    # A `Skip`, or `blocked` with the failed checks of the guardrails.
    reason: Mapped[str]
    checks: Mapped[Sequence[JsonObject] | None] = mapped_column(Json)
    current_amount: Mapped[int | None] = mapped_column(BigInteger)
    proposed_amount: Mapped[int | None] = mapped_column(BigInteger)
    currency: Mapped[str]


class PriceChangeRow(Table):
    """A price that was written in a shop. `kind` is apply or rollback."""

    __tablename__ = "price_changes"
    __table_args__ = (
        CheckConstraint("kind IN ('apply', 'rollback')", name="kind"),
        Index(None, "shop", "variant_id", "applied_at"),
        Index(None, "tenant_id", "project_id", "applied_at"),
        Index(None, "target_id"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    event_key: Mapped[str] = mapped_column(unique=True)
    tenant_id: Mapped[str]
    project_id: Mapped[str]
    shop: Mapped[str]
    kind: Mapped[str]
    source: Mapped[str]
    rule_run_id: Mapped[int] = mapped_column(
        ForeignKey("rule_runs.id", ondelete="CASCADE"), index=True
    )
    target_id: Mapped[int] = mapped_column(ForeignKey("rule_targets.id", ondelete="CASCADE"))
    product_id: Mapped[str]
    variant_id: Mapped[str]
    sku_id: Mapped[str | None]
    currency: Mapped[str]
    from_amount: Mapped[int] = mapped_column(BigInteger)
    to_amount: Mapped[int] = mapped_column(BigInteger)
    compare_at_old: Mapped[int | None] = mapped_column(BigInteger)
    compare_at_new: Mapped[int | None] = mapped_column(BigInteger)
    # The shop already had the price, for example from a call whose answer was lost.
    was_found: Mapped[bool]
    applied_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ShopRow(Table):
    """`available` is the bucket's content at `measured_at` without the reserved points; `pending`
    are the points of calls without an answer yet. All times come from the database's clock."""

    __tablename__ = "pricing_shops"
    __table_args__ = (
        CheckConstraint("circuit IN ('closed', 'open', 'half_open')", name="circuit"),
    )

    shop: Mapped[str] = mapped_column(primary_key=True)
    circuit: Mapped[str] = mapped_column(default="closed")
    # By kind of call (read, write): consecutive refusals and failures.
    streaks: Mapped[Mapping[str, Mapping[str, int]]] = mapped_column(Json, default=dict)
    opened_by: Mapped[str | None]
    # When the circuit last opened, also after it has closed again.
    opened_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    available: Mapped[float] = mapped_column(Float(53))
    maximum: Mapped[float] = mapped_column(Float(53))
    restore_rate: Mapped[float] = mapped_column(Float(53))
    pending: Mapped[float] = mapped_column(Float(53), default=0.0)
    measured_at: Mapped[datetime] = mapped_column(UtcDateTime)
    heard_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # The times of the last hundred rate-limit refusals, in seconds since 1970.
    refusals: Mapped[Sequence[float]] = mapped_column(Json)
    paused_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    paused_by: Mapped[str | None]
    pause_reason: Mapped[str | None]


class RuleCheckRow(Table):
    """A check of the prices of one run: `name` is 5m, 1h, a day, or manual with a number. A check
    without a report is not done yet."""

    __tablename__ = "rule_checks"
    __table_args__ = (
        UniqueConstraint("rule_run_id", "name"),
        Index(None, "checked_at", "due_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    rule_run_id: Mapped[int] = mapped_column(ForeignKey("rule_runs.id", ondelete="CASCADE"))
    name: Mapped[str]
    due_at: Mapped[datetime] = mapped_column(UtcDateTime)
    requested_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    checked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    total_checked: Mapped[int | None]
    mismatches: Mapped[int | None]
    unverified: Mapped[int | None]
    worst: Mapped[str | None]
    report: Mapped[JsonObject | None] = mapped_column(Json)


class PricingAlertRow(Table):
    """A raised alert with the state of its delivery."""

    __tablename__ = "pricing_alerts"
    __table_args__ = (
        CheckConstraint("severity IN ('warning', 'critical')", name="severity"),
        CheckConstraint("status IN ('pending', 'sent', 'failed', 'unsent')", name="status"),
        Index(None, "tenant_id", "project_id", "name", "raised_at"),
        Index(None, "status", "next_retry_at"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    tenant_id: Mapped[str]
    project_id: Mapped[str]
    name: Mapped[str]
    severity: Mapped[str]
    message: Mapped[str]
    raised_at: Mapped[datetime] = mapped_column(UtcDateTime)
    # `unsent`: no webhook was configured.
    status: Mapped[str]
    attempts: Mapped[int] = mapped_column(default=0)
    status_code: Mapped[int | None]
    last_error: Mapped[str | None]
    next_retry_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
