"""The summary of an audit in its row, always computed from its stored steps."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.result import Frame, compliance_of, summary_columns
from automation_pipeline.audits.domain.scoring import Compliance
from automation_pipeline.audits.domain.step_result import StoredStep
from automation_pipeline.audits.store.audits import FoundAudit, get_audit, set_values
from automation_pipeline.audits.store.steps import stored_steps
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.prepared import execute

_OF_AUDIT = (
    select(
        AuditRow.completed_at,
        AuditRow.recordings_count,
        AuditRow.timeline_chunks,
        AuditRow.coverage,
        FicheCache.prospect_prenom,
        FicheCache.prospect_nom,
        FicheCache.groupe,
    )
    .join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id)
    .where(AuditRow.id == bindparam("audit"))
)


def write_summary(session: Session, audit_id: int, now: datetime) -> Compliance:
    """`now` is when the audit ended, unless it had ended before."""
    return summarise(session, get_audit(session, audit_id), stored_steps(session, audit_id), now)


def summarise(
    session: Session, found: FoundAudit, steps: Sequence[StoredStep], now: datetime, **more: object
) -> Compliance:
    """The same of what has been read already; `more` columns are written with it."""
    columns = summary_columns(_frame(session, found, now), steps)
    set_values(session, found.standing.audit_id, {**columns, **more})
    return compliance_of(steps)


def _frame(session: Session, found: FoundAudit, now: datetime) -> Frame:
    audit = found.standing
    row = execute(session, _OF_AUDIT, {"audit": audit.audit_id}).one()
    return Frame(
        audit_id=audit.audit_id,
        tracking_id=audit.tracking_id,
        config_id=audit.audit_config_id,
        config=found.config,
        fiche_id=audit.fiche_id,
        prospect_name=" ".join(filter(None, (row.prospect_prenom, row.prospect_nom))),
        groupe=row.groupe,
        use_rlm=found.use_rlm,
        transcript_mode=found.transcript_mode,
        started_at=found.started_at,
        completed_at=row.completed_at or now,
        recordings=row.recordings_count or 0,
        chunks=row.timeline_chunks or 0,
        coverage=row.coverage,
    )
