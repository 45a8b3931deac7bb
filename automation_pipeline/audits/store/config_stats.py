"""What became of the audits by each configuration, in one query."""

from collections.abc import Iterable

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from automation_pipeline.audits.domain.config_shown import ConfigStats
from automation_pipeline.audits.tables import AuditConfigRow, AuditRow
from automation_pipeline.storage.bulk import among


def stats_of(session: Session, config_ids: Iterable[int]) -> dict[int, ConfigStats]:
    """Of each of them that exists."""
    audit, completed = AuditRow.id, AuditRow.status == "completed"
    every = aliased(AuditRow)
    of_all = select(func.count()).where(every.audit_config_id == AuditConfigRow.id)
    rows = session.execute(
        select(
            AuditConfigRow.id,
            of_all.correlate(AuditConfigRow).scalar_subquery(),
            func.count(audit),
            func.count(audit).filter(completed),
            func.count(audit).filter(AuditRow.status == "failed"),
            func.avg(AuditRow.score_percentage).filter(completed),
            func.avg(AuditRow.duration_ms).filter(completed),
            func.max(AuditRow.created_at),
            func.count(audit).filter(completed, AuditRow.is_compliant.is_(True)),
        )
        .outerjoin(AuditRow, (AuditRow.audit_config_id == AuditConfigRow.id) & AuditRow.deleted_at.is_(None))
        .where(among(session, AuditConfigRow.id, config_ids))
        .group_by(AuditConfigRow.id)
    ).tuples()
    return {
        config_id: ConfigStats(
            all_audits=every_one,
            total_audits=total,
            completed_audits=done,
            failed_audits=failed,
            average_score=None if score is None else round(float(score), 2),
            average_duration_ms=None if duration is None else round(duration),
            last_used_at=last,
            compliance_rate=round(100 * compliant / done, 2) if done else None,
        )
        for config_id, every_one, total, done, failed, score, duration, last, compliant in rows
    }
