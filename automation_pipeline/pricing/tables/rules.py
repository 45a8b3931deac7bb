"""Pricing rules with every version they have had, and the guardrails of projects."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, Json, JsonObject, UtcDateTime

_PLANNED = text("schedule_at IS NOT NULL OR ends_at IS NOT NULL")


class RuleRow(Table):
    """A rule as it is now. A deleted one stays, disabled, for the runs that were made from it."""

    __tablename__ = "pricing_rules"
    __table_args__ = (
        Index(None, "tenant_id", "project_id", "enabled"),
        Index("ix_pricing_rules_planned", "schedule_at", postgresql_where=_PLANNED, sqlite_where=_PLANNED),
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
    # Cleared once the run that it asks for exists.
    schedule_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ends_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    version: Mapped[int]
    version_hash: Mapped[str]
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    deleted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class RuleVersionRow(Table):
    """The whole rule as it was at a version, as people write it. Never changed."""

    __tablename__ = "pricing_rule_versions"
    __table_args__ = (UniqueConstraint("rule_id", "version"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    rule_id: Mapped[int] = mapped_column(ForeignKey("pricing_rules.id", ondelete="CASCADE"))
    version: Mapped[int]
    version_hash: Mapped[str]
    document: Mapped[JsonObject] = mapped_column(Json)
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class PolicyRow(Table):
    """A project's guardrails."""

    __tablename__ = "pricing_policies"

    tenant_id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(primary_key=True)
    document: Mapped[JsonObject] = mapped_column(Json)
    updated_by: Mapped[str]
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
