"""Audits as people and the HTTP API read them: one with all its steps, or a list."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import cast

from pydantic.alias_generators import to_camel
from sqlalchemy import ColumnElement, func, inspect, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.domain.findings import Niveau
from automation_pipeline.audits.domain.place import Place
from automation_pipeline.audits.domain.step_document import step_document
from automation_pipeline.audits.domain.trail import Trail
from automation_pipeline.audits.store.steps import get_step, stored_steps
from automation_pipeline.audits.store.trails import trails_of
from automation_pipeline.audits.tables import AuditConfigRow, AuditRow
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.instants import iso
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.bulk import among

Document = dict[str, object]

_HIDDEN = {"fiche_cache_id", "config_fingerprint", "fence", "touched_at", "result_data"}
_IDS = {"id", "audit_config_id", "automation_schedule_id", "automation_run_id"}


@dataclass(frozen=True, kw_only=True)
class AuditFilter:
    """An empty field lets everything through. A deleted audit is never the latest."""

    fiche_ids: Sequence[str] = ()
    audit_config_ids: Sequence[int] = ()
    statuses: Sequence[AuditStatus] = ()
    niveaux: Sequence[Niveau] = ()
    latest_only: bool = True
    include_deleted: bool = False
    limit: int = 100
    offset: int = 0


def audit_document(session: Session, audit_id: int, *, details: bool = True) -> Document:
    """One audit, deleted or not. Without `details` its result has no steps."""
    found = session.execute(_audits(AuditRow.id == audit_id)).tuples().one_or_none()
    if found is None:
        raise NotFoundError("Audit not found")
    document = _document(found)
    if details:
        document["resultData"] = _with_steps(document["resultData"], _steps(session, audit_id))
    return document


def audit_step_document(session: Session, place: Place) -> Document:
    trail = trails_of(session, place.audit_id).get(place.position, Trail())
    return step_document(get_step(session, place), trail)


def list_audits(session: Session, chosen: AuditFilter) -> tuple[list[Document], int]:
    """Newest first, without steps; and how many there are without `limit` and `offset`."""
    conditions = _conditions(session, chosen)
    total = select(func.count()).select_from(AuditRow).join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id)
    newest_first = _audits(*conditions).order_by(AuditRow.created_at.desc(), AuditRow.id.desc())
    rows = session.execute(newest_first.limit(chosen.limit).offset(chosen.offset)).tuples().all()
    return [_document(row) for row in rows], session.scalar(total.where(*conditions)) or 0


def _conditions(session: Session, chosen: AuditFilter) -> list[ColumnElement[bool]]:
    wanted: Iterable[tuple[object, ColumnElement[bool]]] = (
        (chosen.fiche_ids, among(session, FicheCache.fiche_id, chosen.fiche_ids)),
        (chosen.audit_config_ids, among(session, AuditRow.audit_config_id, chosen.audit_config_ids)),
        (chosen.statuses, among(session, AuditRow.status, chosen.statuses)),
        (chosen.niveaux, among(session, AuditRow.niveau, chosen.niveaux)),
        (chosen.latest_only, AuditRow.is_latest.is_(True)),
        (not chosen.include_deleted, AuditRow.deleted_at.is_(None)),
    )
    return [condition for given, condition in wanted if given]


_Found = tuple[AuditRow, str, str | None, str | None, str | None, str]


def _audits(*conditions: ColumnElement[bool]):  # noqa: ANN202  SQLAlchemy's own type names every column
    fiche = (FicheCache.fiche_id, FicheCache.groupe, FicheCache.prospect_prenom, FicheCache.prospect_nom)
    return (
        select(AuditRow, *fiche, AuditConfigRow.name)
        .join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
        .where(*conditions)
        .execution_options(populate_existing=True)
    )


def _document(found: _Found) -> Document:
    row, fiche_id, groupe, first_name, last_name, config_name = found
    names = [column.key for column in inspect(AuditRow).column_attrs if column.key not in _HIDDEN]
    return {
        **{to_camel(name): _json(name, getattr(row, name)) for name in names},
        "ficheId": fiche_id,
        "groupe": groupe,
        "prospectName": " ".join(filter(None, (first_name, last_name))),
        "auditConfigName": config_name,
        "resultData": row.result_data,
    }


def _json(name: str, value: object) -> object:
    if name in _IDS:
        return None if value is None else str(value)
    if isinstance(value, datetime):
        return iso(value)
    return float(value) if isinstance(value, Decimal) else value


def _steps(session: Session, audit_id: int) -> list[Document]:
    trails = trails_of(session, audit_id)
    return [step_document(step, trails.get(step.position, Trail())) for step in stored_steps(session, audit_id)]


def _with_steps(result: object, steps: list[Document]) -> Document:
    """Also in the result of an audit that has not ended, which says nothing else of its findings."""
    whole = _part(result)
    audit = _part(whole.get("audit"))
    results = {**_part(audit.get("results")), "steps": steps}
    return {**whole, "audit": {**audit, "results": results}}


def _part(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value or {})
