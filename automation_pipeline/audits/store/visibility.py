"""Which audits are within somebody's reach: those of the fiches that are."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.core.access import Reach
from automation_pipeline.fiches.store.visibility import within
from automation_pipeline.fiches.tables import FicheCache


def is_audit_visible(session: Session, reach: Reach, audit_id: int) -> bool:
    """One question, whether the audit is hidden or missing."""
    of_fiche = select(AuditRow.id).join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id)
    return session.scalar(of_fiche.where(AuditRow.id == audit_id, within(session, reach))) is not None
