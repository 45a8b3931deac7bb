"""How audits stand: few queries, however many are asked for."""

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.audit import AuditStatus, Standing
from automation_pipeline.audits.tables import AuditRow, StepResultRow
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.bulk import among


def standings(session: Session, tracking_ids: Sequence[str]) -> dict[str, Standing]:
    """Of those of the audits that have begun."""
    begun = session.execute(
        select(AuditRow, FicheCache.fiche_id)
        .join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id)
        .where(among(session, AuditRow.tracking_id, tracking_ids))
    ).tuples()
    rows = list(begun)
    counts = _counts(session, [row.id for row, _ in rows])
    return {row.tracking_id: _standing(row, fiche_id, counts.get(row.id, (0, 0))) for row, fiche_id in rows}


def standing_of(session: Session, row: AuditRow, fiche_id: str) -> Standing:
    return _standing(row, fiche_id, _counts(session, [row.id]).get(row.id, (0, 0)))


def fiche_of_audit(session: Session, audit_id: int) -> str | None:
    """The id of the fiche that was judged; deleted audits have one too."""
    return session.scalar(
        select(FicheCache.fiche_id)
        .join(AuditRow, AuditRow.fiche_cache_id == FicheCache.id)
        .where(AuditRow.id == audit_id)
    )


def _counts(session: Session, audit_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Steps that have ended, and those of them that failed."""
    rows = session.execute(
        select(StepResultRow.audit_id, func.count(), func.count(StepResultRow.error))
        .where(among(session, StepResultRow.audit_id, audit_ids))
        .group_by(StepResultRow.audit_id)
    ).tuples()
    return {audit_id: (done, failed) for audit_id, done, failed in rows}


def _standing(row: AuditRow, fiche_id: str, counts: tuple[int, int]) -> Standing:
    done, failed = counts
    return Standing(
        audit_id=row.id,
        tracking_id=row.tracking_id,
        fiche_id=fiche_id,
        audit_config_id=row.audit_config_id,
        status=AuditStatus(row.status),
        niveau=row.niveau,
        score_percentage=float(row.score_percentage),
        steps=row.total_steps,
        done=done,
        failed=failed,
        error=row.error_message,
    )
