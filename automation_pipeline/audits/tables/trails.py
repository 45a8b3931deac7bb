"""Who changed a result, when and from what to what: rows are only ever added."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, Json, JsonObject, UtcDateTime


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
    """`rerun_id` makes a rerun count once, however often Dagster tries it."""

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
