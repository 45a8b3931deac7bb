"""Audits as JSON documents: one with its steps, the latest of a fiche, summaries for many fiches,
and workflow logs."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import cast

from sqlalchemy import select
from sqlalchemy.orm import Session, load_only

from automation_pipeline.audits.models.audits import AuditStatus, StepLocation
from automation_pipeline.audits.models.findings import MissingStep, StoredStep
from automation_pipeline.audits.queries.history import histories_of_audits, history_by_step
from automation_pipeline.audits.queries.listings import (
    AuditListRow,
    audit_row_document,
    select_audits,
)
from automation_pipeline.audits.queries.listings import Document as DocumentsDocument
from automation_pipeline.audits.queries.steps import all_steps, get_step
from automation_pipeline.audits.rules.results import (
    missing_step_document,
    missing_step_summary,
    point_document,
    step_document,
    step_summary,
)
from automation_pipeline.audits.rules.reviews import StepHistory
from automation_pipeline.audits.tables import AuditConfigRow, AuditRow
from automation_pipeline.core.access import Reach
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.queries import fiches as status
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.statements import among
from automation_pipeline.storage.workflow_logs import LogPage, log_lines


def audit_document(session: Session, audit_id: int, *, details: bool = True) -> DocumentsDocument:
    """One audit, deleted or not. Without `details` its result has no steps."""
    found = session.execute(select_audits(AuditRow.id == audit_id)).tuples().one_or_none()
    if found is None:
        raise NotFoundError("Audit not found")
    [document] = _with_details(session, [found]) if details else [audit_row_document(found)]
    return document


def latest_of_fiche(
    session: Session, fiche_id: str, *, details: bool = True
) -> list[DocumentsDocument]:
    """The latest audit of the fiche by each configuration, newest first; deleted ones are never the
    latest."""
    latest = select_audits(FicheCacheRow.fiche_id == fiche_id, AuditRow.is_latest.is_(True))
    found = (
        session.execute(latest.order_by(AuditRow.created_at.desc(), AuditRow.id.desc()))
        .tuples()
        .all()
    )
    return _with_details(session, found) if details else [audit_row_document(one) for one in found]


def audit_step_document(session: Session, place: StepLocation) -> DocumentsDocument:
    history = history_by_step(session, place.audit_id).get(place.position, StepHistory())
    return step_document(get_step(session, place), history)


def control_point_document(session: Session, place: StepLocation) -> DocumentsDocument:
    """NotFoundError when there is no such control point; `place` names one."""
    step = get_step(session, place)
    assert place.point is not None  # noqa: S101  the caller asks for a control point
    where = {
        "audit_id": str(place.audit_id),
        "step_position": step.position,
        "step_name": step.name,
    }
    point = point_document(step.finding.points[place.point - 1])
    return {**where, "control_point_index": place.point, **point}


def _with_details(session: Session, audits: Sequence[AuditListRow]) -> list[DocumentsDocument]:
    """As many queries for many as for one."""
    ids = [row.id for row, *_ in audits]
    steps, histories = all_steps(session, ids), histories_of_audits(session, ids)
    documents: list[DocumentsDocument] = []
    for found in audits:
        audit_id, document = found[0].id, audit_row_document(found)
        of_it = [
            _step_document(step, histories.get((audit_id, step.position), StepHistory()))
            for step in steps[audit_id]
        ]
        whole = {"resultData": _with_steps(document["resultData"], of_it)}
        documents.append(
            {**document, **whole, "stepResults": [_step_summary(step) for step in steps[audit_id]]}
        )
    return documents


def _step_document(step: StoredStep | MissingStep, history: StepHistory) -> dict[str, object]:
    return (
        missing_step_document(step)
        if isinstance(step, MissingStep)
        else step_document(step, history)
    )


def _step_summary(step: StoredStep | MissingStep) -> dict[str, object]:
    return missing_step_summary(step) if isinstance(step, MissingStep) else step_summary(step)


def _with_steps(result: object, steps: list[DocumentsDocument]) -> DocumentsDocument:
    """Also in the result of an audit that has not ended, which says nothing else of its
    findings."""
    whole = _part(result)
    audit = _part(whole.get("audit"))
    results = {**_part(audit.get("results")), "steps": steps}
    return {**whole, "audit": {**audit, "results": results}}


def _part(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value or {})


Document = dict[str, object]

# Not the result: it is as long as everything that was found.
_SUMMARY_COLUMNS = (
    AuditRow.audit_config_id, AuditRow.status, AuditRow.score_percentage, AuditRow.niveau, AuditRow.is_compliant,
    AuditRow.error_message, AuditRow.created_at, AuditRow.completed_at,
)  # fmt: skip


def fiche_status(session: Session, fiche_id: str, reach: Reach) -> Document:
    """NotFoundError when it is hidden or missing."""
    found = fiche_statuses(session, [fiche_id], reach)[fiche_id]
    if not found["hasData"]:
        raise NotFoundError("Fiche not found in database")
    return found


def fiche_statuses(session: Session, fiche_ids: Iterable[str], reach: Reach) -> dict[str, Document]:
    """By fiche id; what is hidden or missing has the empty status."""
    known = status.statuses_of(session, fiche_ids, reach)
    audits = audits_of_fiches(
        session, [fiche_id for fiche_id, payload in known.items() if payload["hasData"]]
    )
    return {
        fiche_id: {**payload, "audit": audits.get(fiche_id) or summarise_audits(())}
        for fiche_id, payload in known.items()
    }


def fiches_with_audits(
    session: Session, days: Sequence[date], reach: Reach, page: status.FichePage
) -> tuple[list[Document], int]:
    """The rows of a date list; and how many there are on all pages."""
    rows, total = status.fiches_sold(session, days, reach, page)
    audits = audits_of_fiches(session, [str(row["ficheId"]) for row in rows])
    return [
        {**row, "audit": audits.get(str(row["ficheId"])) or summarise_audits(())} for row in rows
    ], total


def audits_of_fiches(session: Session, fiche_ids: Sequence[str]) -> dict[str, Document]:
    """Of those that have one. The latest of each configuration counts, deleted ones never do."""
    query = (
        select(FicheCacheRow.fiche_id, AuditRow, AuditConfigRow.name)
        .join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
        .where(among(session, FicheCacheRow.fiche_id, fiche_ids), AuditRow.is_latest.is_(True))
        .order_by(AuditRow.created_at.desc(), AuditRow.id.desc())
        .options(load_only(*_SUMMARY_COLUMNS))
    )
    found: dict[str, list[tuple[AuditRow, str]]] = {}
    for fiche_id, row, name in session.execute(query).tuples():
        found.setdefault(fiche_id, []).append((row, name))
    return {fiche_id: summarise_audits(rows) for fiche_id, rows in found.items()}


def summarise_audits(audits: Sequence[tuple[AuditRow, str]]) -> Document:
    """Of one fiche, the newest first. Only what was judged to the end is compliant or not."""
    rows = [row for row, _ in audits]
    judged = [row for row in rows if row.status == AuditStatus.COMPLETED]
    scores = [float(row.score_percentage) for row in judged if row.score_percentage is not None]
    listed = [_audit(row, name) for row, name in audits]
    return {
        "total": len(rows),
        "completed": len(judged),
        "pending": sum(row.status == AuditStatus.PENDING for row in rows),
        "running": sum(row.status == AuditStatus.RUNNING for row in rows),
        "compliant": sum(row.is_compliant is True for row in judged),
        "nonCompliant": sum(row.is_compliant is False for row in judged),
        "averageScore": round(sum(scores) / len(scores), 2) if scores else None,
        "latestAudit": listed[0] if listed else None,
        "audits": listed,
    }


def _audit(row: AuditRow, config_name: str) -> Document:
    judged = row.status == AuditStatus.COMPLETED
    return {
        "id": str(row.id),
        "auditConfigId": str(row.audit_config_id),
        "auditConfigName": config_name,
        "status": row.status,
        "scorePercentage": float(row.score_percentage)
        if judged and row.score_percentage is not None
        else None,
        "niveau": row.niveau if judged else None,
        "isCompliant": row.is_compliant if judged else None,
        "errorMessage": row.error_message,
        "createdAt": iso(row.created_at),
        "completedAt": row.completed_at and iso(row.completed_at),
    }


def audit_logs(
    session: Session, audit_id: int, *, level: str | None = None, limit: int = 200, offset: int = 0
) -> tuple[list[Document], int]:
    """Oldest first, and how many there are without `limit` and `offset`. Its reruns, reviews and
    changes are there."""
    tracking_id = session.scalar(select(AuditRow.tracking_id).where(AuditRow.id == audit_id))
    if tracking_id is None:
        raise NotFoundError("Audit not found")
    # Traced by the id of the row; by the tracking id only what was written before there was one.
    traces = (str(audit_id), tracking_id)
    return log_lines(
        session,
        LogPage(workflow="audit", trace_ids=traces, level=level, limit=limit, offset=offset),
    )
