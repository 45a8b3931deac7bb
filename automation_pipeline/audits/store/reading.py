"""One audit as people and the HTTP API read it, whole or a part of it. Lists of them are in `listing`."""

from collections.abc import Mapping, Sequence
from typing import cast

from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.place import Place
from automation_pipeline.audits.domain.step_document import (
    missing_step_document,
    missing_step_summary,
    point_document,
    step_document,
    step_summary,
)
from automation_pipeline.audits.domain.step_result import MissingStep, StoredStep
from automation_pipeline.audits.domain.trail import Trail
from automation_pipeline.audits.store.documents import Document, Found, audit_row_document, audits_where
from automation_pipeline.audits.store.steps import every_step, get_step
from automation_pipeline.audits.store.trails import all_trails, trails_of
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.tables import FicheCache


def audit_document(session: Session, audit_id: int, *, details: bool = True) -> Document:
    """One audit, deleted or not. Without `details` its result has no steps."""
    found = session.execute(audits_where(AuditRow.id == audit_id)).tuples().one_or_none()
    if found is None:
        raise NotFoundError("Audit not found")
    [document] = _with_details(session, [found]) if details else [audit_row_document(found)]
    return document


def latest_of_fiche(session: Session, fiche_id: str, *, details: bool = True) -> list[Document]:
    """The latest audit of the fiche by each configuration, newest first; deleted ones are never the latest."""
    latest = audits_where(FicheCache.fiche_id == fiche_id, AuditRow.is_latest.is_(True))
    found = session.execute(latest.order_by(AuditRow.created_at.desc(), AuditRow.id.desc())).tuples().all()
    return _with_details(session, found) if details else [audit_row_document(one) for one in found]


def audit_step_document(session: Session, place: Place) -> Document:
    trail = trails_of(session, place.audit_id).get(place.position, Trail())
    return step_document(get_step(session, place), trail)


def control_point_document(session: Session, place: Place) -> Document:
    """NotFoundError when there is no such control point; `place` names one."""
    step = get_step(session, place)
    assert place.point is not None  # noqa: S101  the caller asks for a control point
    where = {"audit_id": str(place.audit_id), "step_position": step.position, "step_name": step.name}
    point = point_document(step.finding.points[place.point - 1])
    return {**where, "control_point_index": place.point, **point}


def _with_details(session: Session, audits: Sequence[Found]) -> list[Document]:
    """As many queries for many as for one."""
    ids = [row.id for row, *_ in audits]
    steps, trails = every_step(session, ids), all_trails(session, ids)
    documents: list[Document] = []
    for found in audits:
        audit_id, document = found[0].id, audit_row_document(found)
        of_it = [_step_document(step, trails.get((audit_id, step.position), Trail())) for step in steps[audit_id]]
        whole = {"resultData": _with_steps(document["resultData"], of_it)}
        documents.append({**document, **whole, "stepResults": [_step_summary(step) for step in steps[audit_id]]})
    return documents


def _step_document(step: StoredStep | MissingStep, trail: Trail) -> dict[str, object]:
    return missing_step_document(step) if isinstance(step, MissingStep) else step_document(step, trail)


def _step_summary(step: StoredStep | MissingStep) -> dict[str, object]:
    return missing_step_summary(step) if isinstance(step, MissingStep) else step_summary(step)


def _with_steps(result: object, steps: list[Document]) -> Document:
    """Also in the result of an audit that has not ended, which says nothing else of its findings."""
    whole = _part(result)
    audit = _part(whole.get("audit"))
    results = {**_part(audit.get("results")), "steps": steps}
    return {**whole, "audit": {**audit, "results": results}}


def _part(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value or {})
