"""What an audit found: step, control point, citation. Each is known by its place, counted from 1."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, ForeignKeyConstraint, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, Json, JsonObject, TextList, UtcDateTime


class StepResultRow(Table):
    """As it holds: after gating, reruns and reviews. A step with an `error` could not be judged and has no verdict."""

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
            "audit_id", "step_position", "control_point_index", name="uq_audit_step_result_control_points_place"
        ),
        ForeignKeyConstraint(
            ["audit_id", "step_position"],
            ["audit_step_results.audit_id", "audit_step_results.step_position"],
            ondelete="CASCADE",
        ),
        CheckConstraint("statut IN ('PRESENT', 'ABSENT', 'PARTIEL', 'NON_APPLICABLE')", name="statut"),
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
    """`recording_index` and `chunk_index` count from 0; `call_id` names the recording for good."""

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
