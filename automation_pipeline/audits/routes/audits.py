"""HTTP endpoints of audits: list, group, show, annotate, review."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import Response

from automation_pipeline.api.bodies import JsonObject, json_body
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.openapi import EMPTY_IS_NOT_GIVEN
from automation_pipeline.api.parameters import (
    CallerDep,
    DatabaseDep,
    FicheInPath,
    IdInPath,
    Limit,
    Offset,
    Pagination,
    ReachDep,
    ServicesDep,
    pagination,
)
from automation_pipeline.api.responses import (
    Answer,
    CamelModel,
    Done,
    WorkflowLines,
    answer,
    answer_with,
    refusals,
)
from automation_pipeline.api.scopes import check_links
from automation_pipeline.audits.models.audits import (
    AuditStatus,
    Conforme,
    Niveau,
    Statut,
    StepLocation,
)
from automation_pipeline.audits.models.requests import (
    INVALID_CHANGE,
    AuditChange,
    AuditFilter,
    AuditGrouping,
    GroupBy,
)
from automation_pipeline.audits.queries.documents import (
    ListingScope,
    audit_document,
    audit_logs,
    control_point_document,
    group_audits,
    latest_of_fiche,
    list_audits,
    list_by_fiche,
)
from automation_pipeline.audits.reviews import (
    PointReview,
    StepReview,
    record_review,
    set_audit_deleted,
    update_audit,
)
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Caller, Reach
from automation_pipeline.core.events import LogLevel
from automation_pipeline.core.json_model import Instant
from automation_pipeline.core.scheduling.zones import zone

Json = dict[str, Any]  # Any: JSON, which docs/api.md describes
CHANGE_EXAMPLE: Mapping[str, object] = {"notes": "Called back on Monday", "automation_run_id": None}
STEP_REVIEW_EXAMPLE: Mapping[str, object] = {
    "conforme": "CONFORME",
    "score": 5,
    "reason": "It is said at 02:10",
}
POINT_REVIEW_EXAMPLE: Mapping[str, object] = {"statut": "PRESENT", "reason": "It is said at 02:10"}


class AuditShown(CamelModel):
    """Scores are percentages; only a completed audit has one, and is compliant or not. An
    incomplete audit lacks a judged step or a transcript: `errorMessage` names it, and `coverage`
    lists the required recordings."""

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


class StepSummary(CamelModel):
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
    """`resultData` contains every step with its control points, quotations and history;
    `stepResults` summarises them."""

    step_results: list[StepSummary]


class AuditList(Answer[list[AuditShown]]):
    pagination: Pagination


class AuditsOfFiche(Answer[list[AuditShown]]):
    count: int


class FicheBrief(CamelModel):
    fiche_id: str
    groupe: str | None
    agence_nom: str | None
    prospect_nom: str | None
    prospect_prenom: str | None
    sales_date: str | None


class FicheSummary(CamelModel):
    total_audits: int
    compliant_count: int
    average_score: float | None
    latest_audit_date: Instant


class AuditedFiche(BaseModel):
    fiche: FicheBrief
    audits: list[AuditShown]
    summary: FicheSummary


class AuditedFiches(Answer[list[AuditedFiche]]):
    pagination: Pagination


class AuditGroup(CamelModel):
    """`key` is null for audits without a value. Scores and compliance count the completed audits."""

    key: str | None
    count: int
    compliant_count: int
    non_compliant_count: int
    avg_score: float | None
    min_score: float | None
    max_score: float | None
    status_counts: dict[AuditStatus, int]


class AuditGroups(Answer[list[AuditGroup]]):
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
    """The step as in the audit's result."""

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


router = APIRouter(route_class=GuardedRoute, tags=["audits"])
PATH = "/api/audits"
ONE = f"{PATH}/{{audit_id}}"
STEP = f"{ONE}/steps/{{position}}"
POINT = f"{STEP}/control-points/{{point}}"


@router.get(PATH, response_model=AuditList, openapi_extra=EMPTY_IS_NOT_GIVEN)
def list_(
    chosen: Annotated[AuditFilter, Query()], reach: ReachDep, services: ServicesDep
) -> Response:
    """List audits, without their steps. Lists in parameters are separated by commas."""
    audits, total = services.database.read(list_audits, chosen, _scope(reach, services))
    return answer(audits, pagination=pagination(total, chosen.limit, chosen.offset))


@router.get(f"{PATH}/grouped", response_model=AuditGroups, openapi_extra=EMPTY_IS_NOT_GIVEN)
def grouped(
    chosen: Annotated[AuditGrouping, Query()], reach: ReachDep, services: ServicesDep
) -> Response:
    """Count audits by group, the largest groups first; days and scores are in chronological and
    numerical order."""
    groups, total = services.database.read(group_audits, chosen, _scope(reach, services))
    return answer(
        groups,
        group_by=chosen.group_by,
        count=len(groups),
        pagination=pagination(total, chosen.limit, chosen.offset),
    )


@router.get(
    f"{PATH}/grouped-by-fiches", response_model=AuditedFiches, openapi_extra=EMPTY_IS_NOT_GIVEN
)
def grouped_by_fiches(
    chosen: Annotated[AuditFilter, Query()], reach: ReachDep, services: ServicesDep
) -> Response:
    """List fiches with their audits. Pages count fiches."""
    fiches, total = services.database.read(list_by_fiche, chosen, _scope(reach, services))
    return answer(fiches, pagination=pagination(total, chosen.limit, chosen.offset))


@router.get(f"{PATH}/control-points/statuses", response_model=Answer[list[Statut]])
def statuses() -> Response:
    """List the possible verdicts on a control point."""
    return answer([statut.value for statut in Statut])


@router.get(f"{PATH}/by-fiche/{{fiche_id}}", response_model=AuditsOfFiche, responses=refusals(404))
def of_fiche(
    fiche_id: FicheInPath, database: DatabaseDep, *, include_details: bool = True
) -> Response:
    """List the latest audit of a fiche per configuration, newest first, with the steps unless
    `include_details` is false."""
    audits = database.read(latest_of_fiche, fiche_id, details=include_details)
    return answer(audits, count=len(audits))


@router.get(ONE, response_model=Answer[AuditDetail], responses=refusals(404))
def show(audit_id: IdInPath, database: DatabaseDep) -> Response:
    """Show one audit with all its findings. A deleted audit has a `deletedAt`."""
    return answer(database.read(audit_document, audit_id))


@router.patch(ONE, response_model=Answer[AuditDetail], responses=refusals(404))
def update(
    audit_id: IdInPath,
    change: Annotated[AuditChange, json_body(AuditChange, INVALID_CHANGE, noted=CHANGE_EXAMPLE)],
    caller: CallerDep,
    database: DatabaseDep,
) -> Response:
    """Change the annotations of an audit; null clears a field, omitted fields stay. `deleted:
    false` restores the audit."""
    check_links(change.model_dump(), caller, database, INVALID_CHANGE)
    return answer(update_audit(audit_id, change, database=database))


@router.delete(ONE, response_model=Done, responses=refusals(404))
def delete(audit_id: IdInPath, database: DatabaseDep) -> Response:
    """Mark an audit as deleted. It stays stored, and the newest remaining completed audit becomes
    the latest."""
    set_audit_deleted(audit_id, deleted=True, database=database)
    return answer_with(message="Audit deleted")


@router.get(f"{ONE}/logs", response_model=WorkflowLines, responses=refusals(404))
def logs(
    audit_id: IdInPath,
    database: DatabaseDep,
    level: Annotated[LogLevel | None, Query(description="Only entries of this level.")] = None,
    limit: Limit = 200,
    offset: Offset = 0,
) -> Response:
    """List the log entries of the audit, including reruns and reviews, oldest first."""
    lines, total = database.read(audit_logs, audit_id, level=level, limit=limit, offset=offset)
    return answer(lines, count=len(lines), total=total, limit=limit, offset=offset)


@router.get(POINT, response_model=Answer[PointShown], responses=refusals(404))
def control_point(
    audit_id: IdInPath, position: IdInPath, point: IdInPath, database: DatabaseDep
) -> Response:
    """Show one control point with its evidence. Both positions count from 1."""
    return answer(database.read(control_point_document, audit_id, position, point))


@router.patch(f"{STEP}/review", response_model=Answer[AuditedStep], responses=refusals(404, 409))
def review_step(
    audit_id: IdInPath,
    position: IdInPath,
    body: Annotated[JsonObject, json_body(StepReview, overruled=STEP_REVIEW_EXAMPLE)],
    caller: CallerDep,
    database: DatabaseDep,
) -> Response:
    """Overrule a step of a completed audit. The caller is the reviewer; a machine token may name
    another reviewer."""
    return answer(
        record_review(
            StepLocation(audit_id, position),
            _with_reviewer(body, caller),
            database=database,
        )
    )


@router.patch(f"{POINT}/review", response_model=Answer[AuditedStep], responses=refusals(404, 409))
def review_control_point(
    audit_id: IdInPath,
    position: IdInPath,
    point: IdInPath,
    body: Annotated[JsonObject, json_body(PointReview, overruled=POINT_REVIEW_EXAMPLE)],
    caller: CallerDep,
    database: DatabaseDep,
) -> Response:
    """Overrule one control point of a completed audit. The caller is the reviewer; a machine token
    may name another reviewer."""
    return answer(
        record_review(
            StepLocation(audit_id, position, point),
            _with_reviewer(body, caller),
            database=database,
        )
    )


def _with_reviewer(body: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
    """Only a machine token may name another reviewer."""
    return {
        **body,
        "reviewer": (body.get("reviewer") if caller.is_machine else None)
        or (caller.name or caller.id)[:200],
    }


def _scope(reach: Reach, services: Services) -> ListingScope:
    return ListingScope(reach, zone(services.settings.automation_timezone))
