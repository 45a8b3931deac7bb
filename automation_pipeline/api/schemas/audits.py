"""Audits as the API shows them."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from automation_pipeline.api.paging import Pagination
from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.domain.audit_filter import GroupBy
from automation_pipeline.audits.domain.findings import Conforme, Niveau, Statut
from automation_pipeline.core.json_model import Instant

Json = dict[str, Any]  # Any: JSON, whose form is told in docs/api.md
CHANGE: Mapping[str, object] = {"notes": "Called back on Monday", "automation_run_id": None}


class _Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class AuditShown(_Camel):
    """Scores are percentages; only a completed audit has one, and is compliant or not. An incomplete audit waits for a
    step that could not be judged or for a transcript: `errorMessage` says for which, `coverage` which recordings it
    needs."""

    id: str
    tracking_id: str
    fiche_id: str
    groupe: str | None
    prospect_name: str
    audit_config_id: str
    audit_config_name: str
    automation_schedule_id: str | None
    automation_run_id: str | None
    trigger_source: str | None
    trigger_user_id: str | None
    notes: str | None
    deleted_at: Instant | None
    overall_score: float | None
    score_percentage: float | None
    niveau: Niveau
    is_compliant: bool | None
    critical_passed: int
    critical_total: int
    status: AuditStatus
    started_at: Instant | None
    completed_at: Instant | None
    duration_ms: int | None
    error_message: str | None
    total_tokens: int | None
    total_steps: int
    successful_steps: int | None
    failed_steps: int | None
    recordings_count: int | None
    timeline_chunks: int | None
    coverage: Json | None
    version: int
    is_latest: bool
    use_rlm: bool
    transcript_mode: str
    gating: Json | None
    dagster_run_id: str | None
    created_at: Instant
    result_data: Json | None


class StepSummary(_Camel):
    """A step with an `error` could not be judged and has no verdict."""

    step_position: int
    step_name: str
    severity_level: str
    is_critical: bool
    weight: int
    traite: bool
    conforme: Conforme | None
    score: int | None
    niveau_conformite: Niveau | None
    commentaire_global: str
    mots_cles_trouves: list[str]
    minutages: list[str]
    erreurs_transcription_tolerees: int
    total_citations: int
    total_tokens: int
    error: str | None


class AuditDetail(AuditShown):
    """`resultData` holds every step with its control points, quotations and trails; `stepResults` sums them up."""

    step_results: list[StepSummary]


class AuditList(BaseModel):
    success: Literal[True] = True
    data: list[AuditShown]
    pagination: Pagination


class AuditsOfFiche(BaseModel):
    success: Literal[True] = True
    data: list[AuditShown]
    count: int


class FicheBrief(_Camel):
    fiche_id: str
    groupe: str | None
    agence_nom: str | None
    prospect_nom: str | None
    prospect_prenom: str | None
    sales_date: str | None


class FicheSummary(_Camel):
    total_audits: int
    compliant_count: int
    average_score: float | None
    latest_audit_date: Instant


class AuditedFiche(BaseModel):
    fiche: FicheBrief
    audits: list[AuditShown]
    summary: FicheSummary


class AuditedFiches(BaseModel):
    success: Literal[True] = True
    data: list[AuditedFiche]
    pagination: Pagination


class AuditGroup(_Camel):
    """`key` is null for what has none. Scores and compliance are of the completed audits."""

    key: str | None
    count: int
    compliant_count: int
    non_compliant_count: int
    avg_score: float | None
    min_score: float | None
    max_score: float | None
    status_counts: dict[AuditStatus, int]


class AuditGroups(BaseModel):
    success: Literal[True] = True
    data: list[AuditGroup]
    group_by: GroupBy
    count: int
    pagination: Pagination


class PointShown(BaseModel):
    audit_id: str
    step_position: int
    step_name: str
    control_point_index: int
    point: str
    statut: Statut
    commentaire: str
    minutages: list[str]
    erreur_transcription_notee: bool
    variation_phonetique_utilisee: str | None
    citations: list[Json]


class AuditedStep(BaseModel):
    """The step as it is in the audit's result."""

    traite: bool
    conforme: Conforme
    score: int
    niveau_conformite: Niveau
    commentaire_global: str
    minutages: list[str]
    mots_cles_trouves: list[str]
    erreurs_transcription_tolerees: int
    error: str | None
    points_controle: list[Json]
    step_metadata: Json
    usage: Json
    human_review: list[Json]
    rerun_history: list[Json]
