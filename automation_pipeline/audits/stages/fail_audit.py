"""End an audit as failed, with the reason: nothing of it can be believed, so it gets no score."""

from automation_pipeline.audits.domain import events
from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.domain.notes import audit_note
from automation_pipeline.audits.stages.end_batch_item import end_batch_item
from automation_pipeline.audits.store.audits import find_audit, hold_audit, set_values
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes


def fail_audit(session: Session, tracking_id: str, error: str, stage: str) -> None:
    """In the caller's transaction. An audit that has ended stays as it ended; one that never began is only counted in
    its batch."""
    found = find_audit(session, tracking_id)
    if found is None:
        end_batch_item(session, tracking_id, error)
        return
    audit, now = found.standing, database_time(session)
    if not hold_audit(session, audit.audit_id, None, now):
        return
    lasted = round(1000 * (now - found.started_at).total_seconds())
    values = {"status": AuditStatus.FAILED, "error_message": error, "completed_at": now, "duration_ms": lasted}
    set_values(session, audit.audit_id, values)
    enqueue(session, [events.failed(audit, error, stage, now)])
    write_notes(session, audit_note(audit, f"END: failed at {stage}: {error}", level="error"))
    end_batch_item(session, tracking_id, error)
