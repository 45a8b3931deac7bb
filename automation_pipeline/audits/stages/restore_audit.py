"""Take back the deletion of an audit. The newest that is not deleted is the latest again."""

from automation_pipeline.audits.domain.notes import audit_note
from automation_pipeline.audits.store.audits import get_audit, set_deleted
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.workflow_logs import write_notes


def restore_audit(audit_id: int, *, database: Database) -> None:
    """Nothing for an audit that is not deleted."""
    with database.transaction() as session:
        set_deleted(session, audit_id, None)
        write_notes(session, audit_note(get_audit(session, audit_id).standing, "RESTORE: the audit is not deleted"))
