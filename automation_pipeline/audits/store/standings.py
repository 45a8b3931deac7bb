"""How audits stand: few queries, however many are asked for."""

from collections.abc import Sequence

from sqlalchemy import Label, Row, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from automation_pipeline.audits.domain.audit import AuditStatus, Standing
from automation_pipeline.audits.tables import AuditRow, StepResultRow
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.bulk import among


def _of_steps(counted: InstrumentedAttribute[int] | InstrumentedAttribute[str | None], name: str) -> Label[int]:
    of_audit = StepResultRow.audit_id == AuditRow.id
    return select(func.count(counted)).where(of_audit).correlate(AuditRow).scalar_subquery().label(name)


# Without the audit's documents. Steps that were attempted, and those of them that could not be judged.
STANDING = (
    AuditRow.id,
    AuditRow.tracking_id,
    AuditRow.audit_config_id,
    AuditRow.status,
    AuditRow.niveau,
    AuditRow.score_percentage,
    AuditRow.total_steps,
    AuditRow.error_message,
    FicheCache.fiche_id,
    _of_steps(StepResultRow.audit_id, "attempted"),
    _of_steps(StepResultRow.error, "failed"),
)


def standings(session: Session, tracking_ids: Sequence[str]) -> dict[str, Standing]:
    """Of those of the audits that have begun."""
    begun = session.execute(
        select(*STANDING)
        .join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id)
        .where(among(session, AuditRow.tracking_id, tracking_ids))
    )
    return {row.tracking_id: standing_in(row) for row in begun}


def fiche_of_audit(session: Session, audit_id: int) -> str | None:
    """The id of the fiche that was judged; deleted audits have one too."""
    return session.scalar(
        select(FicheCache.fiche_id)
        .join(AuditRow, AuditRow.fiche_cache_id == FicheCache.id)
        .where(AuditRow.id == audit_id)
    )


def standing_in(row: Row[tuple[object, ...]]) -> Standing:
    """Of a row that has the columns of STANDING."""
    return Standing(
        audit_id=row.id,
        tracking_id=row.tracking_id,
        fiche_id=row.fiche_id,
        audit_config_id=row.audit_config_id,
        status=AuditStatus(row.status),
        niveau=row.niveau,
        score_percentage=None if row.score_percentage is None else float(row.score_percentage),
        steps=row.total_steps,
        done=row.attempted - row.failed,
        failed=row.failed,
        error=row.error_message,
    )
