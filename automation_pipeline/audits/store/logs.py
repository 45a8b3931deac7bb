"""What was written down about an audit while it was worked on."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.workflow_log_pages import LogPage, log_lines

Document = dict[str, object]


def audit_logs(
    session: Session, audit_id: int, *, level: str | None = None, limit: int = 200, offset: int = 0
) -> tuple[list[Document], int]:
    """Oldest first, and how many there are without `limit` and `offset`. Its reruns, reviews and changes are there."""
    tracking_id = session.scalar(select(AuditRow.tracking_id).where(AuditRow.id == audit_id))
    if tracking_id is None:
        raise NotFoundError("Audit not found")
    # Traced by the id of the row; by the tracking id only what was written before there was one.
    traces = (str(audit_id), tracking_id)
    return log_lines(session, LogPage(workflow="audit", trace_ids=traces, level=level, limit=limit, offset=offset))
