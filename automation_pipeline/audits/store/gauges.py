"""How many audits are under way: numbers for graphs."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.tables import AuditRow


def unfinished_audits(session: Session) -> int:
    under_way = AuditRow.status.in_((AuditStatus.PENDING, AuditStatus.RUNNING))
    return session.scalar(select(func.count()).where(under_way)) or 0
