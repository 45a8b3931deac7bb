"""What the latest audits of fiches found, in short, for many fiches at once; and the fiches' own status beside it."""

from collections.abc import Iterable, Sequence
from datetime import date

from sqlalchemy import select
from sqlalchemy.orm import Session, load_only

from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.tables import AuditConfigRow, AuditRow
from automation_pipeline.core.access import Reach
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.instants import iso
from automation_pipeline.fiches.store import status
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.bulk import among

Document = dict[str, object]

# Not the result: it is as long as everything that was found.
_SHOWN = (
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
    audits = audits_of_fiches(session, [fiche_id for fiche_id, told in known.items() if told["hasData"]])
    return {fiche_id: {**told, "audit": audits.get(fiche_id) or in_short(())} for fiche_id, told in known.items()}


def fiches_with_audits(
    session: Session, days: Sequence[date], reach: Reach, page: status.Page
) -> tuple[list[Document], int]:
    """The rows of a date list; and how many there are on all pages."""
    rows, total = status.fiches_sold(session, days, reach, page)
    audits = audits_of_fiches(session, [str(row["ficheId"]) for row in rows])
    return [{**row, "audit": audits.get(str(row["ficheId"])) or in_short(())} for row in rows], total


def audits_of_fiches(session: Session, fiche_ids: Sequence[str]) -> dict[str, Document]:
    """Of those that have one. The latest of each configuration counts, deleted ones never do."""
    query = (
        select(FicheCache.fiche_id, AuditRow, AuditConfigRow.name)
        .join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
        .where(among(session, FicheCache.fiche_id, fiche_ids), AuditRow.is_latest.is_(True))
        .order_by(AuditRow.created_at.desc(), AuditRow.id.desc())
        .options(load_only(*_SHOWN))
    )
    found: dict[str, list[tuple[AuditRow, str]]] = {}
    for fiche_id, row, name in session.execute(query).tuples():
        found.setdefault(fiche_id, []).append((row, name))
    return {fiche_id: in_short(rows) for fiche_id, rows in found.items()}


def in_short(audits: Sequence[tuple[AuditRow, str]]) -> Document:
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
        "scorePercentage": float(row.score_percentage) if judged and row.score_percentage is not None else None,
        "niveau": row.niveau if judged else None,
        "isCompliant": row.is_compliant if judged else None,
        "errorMessage": row.error_message,
        "createdAt": iso(row.created_at),
        "completedAt": row.completed_at and iso(row.completed_at),
    }
