"""The summary of an audit in its row, always computed from its stored steps."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.result import Frame, compliance_of, summary_columns
from automation_pipeline.audits.domain.scoring import Compliance
from automation_pipeline.audits.store.audits import get_audit, set_values
from automation_pipeline.audits.store.steps import stored_steps
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.fiches.tables import FicheCache


def write_summary(session: Session, audit_id: int, now: datetime) -> Compliance:
    """`now` is when the audit ended, unless it had ended before."""
    steps, frame = stored_steps(session, audit_id), _frame(session, audit_id, now)
    set_values(session, audit_id, summary_columns(frame, steps))
    return compliance_of(steps)


def _frame(session: Session, audit_id: int, now: datetime) -> Frame:
    found = get_audit(session, audit_id)
    row, fiche = (
        session.execute(
            select(AuditRow, FicheCache)
            .join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id)
            .where(AuditRow.id == audit_id)
            .execution_options(populate_existing=True)
        )
        .tuples()
        .one()
    )
    return Frame(
        audit_id=audit_id,
        tracking_id=row.tracking_id,
        config_id=row.audit_config_id,
        config=found.config,
        fiche_id=fiche.fiche_id,
        prospect_name=" ".join(filter(None, (fiche.prospect_prenom, fiche.prospect_nom))),
        groupe=fiche.groupe,
        use_rlm=row.use_rlm,
        transcript_mode=row.transcript_mode,
        started_at=found.started_at,
        completed_at=row.completed_at or now,
        recordings=row.recordings_count or 0,
        chunks=row.timeline_chunks or 0,
    )
