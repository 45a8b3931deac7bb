"""Audits: listed, grouped, shown, annotated. What starts work, and reviews, are in `audit_work` and `audit_reviews`."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from automation_pipeline.api.audit_scopes import check_links
from automation_pipeline.api.bodies import TheBody
from automation_pipeline.api.context import FicheInPath, IdInPath, Limit, Offset, TheCaller, TheReach, TheServices
from automation_pipeline.api.documented import EMPTY_IS_NOT_GIVEN, takes
from automation_pipeline.api.envelope import Answer, Done, answer, refusals, said
from automation_pipeline.api.guard import GuardedRoute
from automation_pipeline.api.paging import pagination
from automation_pipeline.api.schemas.audits import (
    CHANGE,
    AuditDetail,
    AuditedFiches,
    AuditGroups,
    AuditList,
    AuditsOfFiche,
    PointShown,
)
from automation_pipeline.api.schemas.logs import WorkflowLines
from automation_pipeline.audits.domain.audit_change import COMPLAINT, AuditChange
from automation_pipeline.audits.domain.audit_filter import AuditFilter, AuditGrouping
from automation_pipeline.audits.domain.findings import Statut
from automation_pipeline.audits.domain.place import Place
from automation_pipeline.audits.stages.delete_audit import delete_audit
from automation_pipeline.audits.stages.update_audit import update_audit
from automation_pipeline.audits.store.conditions import View
from automation_pipeline.audits.store.grouping import group_audits
from automation_pipeline.audits.store.listing import list_audits, list_by_fiche
from automation_pipeline.audits.store.logs import audit_logs
from automation_pipeline.audits.store.reading import audit_document, control_point_document, latest_of_fiche
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.access import Reach
from automation_pipeline.core.json_model import parse
from automation_pipeline.core.notes import LogLevel
from automation_pipeline.core.wall_clock import zone

router = APIRouter(route_class=GuardedRoute, tags=["audits"])
PATH = "/api/audits"
ONE = f"{PATH}/{{audit_id}}"


@router.get(PATH, response_model=AuditList, openapi_extra=EMPTY_IS_NOT_GIVEN)
def list_(chosen: Annotated[AuditFilter, Query()], reach: TheReach, services: TheServices) -> Response:
    """List audits, without their steps. Lists in parameters are separated by commas."""
    with services.database.reading() as session:
        audits, total = list_audits(session, chosen, _view(reach, services))
    return answer(audits, pagination=pagination(total, chosen.limit, chosen.offset))


@router.get(f"{PATH}/grouped", response_model=AuditGroups, openapi_extra=EMPTY_IS_NOT_GIVEN)
def grouped(chosen: Annotated[AuditGrouping, Query()], reach: TheReach, services: TheServices) -> Response:
    """Count audits by what they have in common: the biggest groups first; days and scores in their own order."""
    with services.database.reading() as session:
        groups, total = group_audits(session, chosen, _view(reach, services))
    page = pagination(total, chosen.limit, chosen.offset)
    return answer(groups, group_by=chosen.group_by, count=len(groups), pagination=page)


@router.get(f"{PATH}/grouped-by-fiches", response_model=AuditedFiches, openapi_extra=EMPTY_IS_NOT_GIVEN)
def grouped_by_fiches(chosen: Annotated[AuditFilter, Query()], reach: TheReach, services: TheServices) -> Response:
    """List fiches with their audits; the page is one of fiches."""
    with services.database.reading() as session:
        fiches, total = list_by_fiche(session, chosen, _view(reach, services))
    return answer(fiches, pagination=pagination(total, chosen.limit, chosen.offset))


@router.get(f"{PATH}/control-points/statuses", response_model=Answer[list[Statut]])
def statuses() -> Response:
    """What a control point can be found to be."""
    return answer([statut.value for statut in Statut])


@router.get(f"{PATH}/by-fiche/{{fiche_id}}", response_model=AuditsOfFiche, responses=refusals(404))
def of_fiche(fiche_id: FicheInPath, services: TheServices, *, include_details: bool = True) -> Response:
    """List the latest audits of a fiche, one a configuration, newest first; with their steps unless told otherwise."""
    with services.database.reading() as session:
        audits = latest_of_fiche(session, fiche_id, details=include_details)
    return answer(audits, count=len(audits))


@router.get(ONE, response_model=Answer[AuditDetail], responses=refusals(404))
def show(audit_id: IdInPath, services: TheServices) -> Response:
    """Show one audit with everything that was found. Deleted ones have a `deletedAt`."""
    with services.database.reading() as session:
        return answer(audit_document(session, audit_id))


@router.patch(
    ONE, response_model=Answer[AuditDetail], responses=refusals(404), openapi_extra=takes(AuditChange, noted=CHANGE)
)
def update(audit_id: IdInPath, body: TheBody, caller: TheCaller, services: TheServices) -> Response:
    """Change what is noted about an audit; null clears, what is not named stays. `deleted: false` restores it."""
    change = parse(AuditChange, body, COMPLAINT)
    check_links(change.model_dump(), caller, services.database, COMPLAINT)
    return answer(update_audit(audit_id, body, database=services.database))


@router.delete(ONE, response_model=Done, responses=refusals(404))
def delete(audit_id: IdInPath, services: TheServices) -> Response:
    """Put an audit out of sight: it is kept, and the newest completed one that is left is the latest."""
    delete_audit(audit_id, database=services.database)
    return said(message="Audit deleted")


@router.get(f"{ONE}/logs", response_model=WorkflowLines, responses=refusals(404))
def logs(
    audit_id: IdInPath,
    services: TheServices,
    level: Annotated[LogLevel | None, Query(description="Only lines of this level.")] = None,
    limit: Limit = 200,
    offset: Offset = 0,
) -> Response:
    """What was written down while the audit was worked on, reruns and reviews included; oldest first."""
    with services.database.reading() as session:
        lines, total = audit_logs(session, audit_id, level=level, limit=limit, offset=offset)
    return answer(lines, count=len(lines), total=total, limit=limit, offset=offset)


@router.get(
    f"{ONE}/steps/{{position}}/control-points/{{point}}", response_model=Answer[PointShown], responses=refusals(404)
)
def control_point(audit_id: IdInPath, position: IdInPath, point: IdInPath, services: TheServices) -> Response:
    """Show one control point with what proves it. Both positions count from 1."""
    with services.database.reading() as session:
        return answer(control_point_document(session, Place(audit_id, position, point)))


def _view(reach: Reach, services: Services) -> View:
    return View(reach, zone(services.settings.automation_timezone))
