"""Put an audit out of sight. It is kept, and the one before it is the latest again."""

from automation_pipeline.audits.domain.notes import audit_note
from automation_pipeline.audits.store.audits import get_audit, set_deleted
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.workflow_logs import write_notes


def delete_audit(audit_id: int, *, database: Database) -> None:
    """`restore_audit` undoes it."""
    with database.transaction() as session:
        set_deleted(session, audit_id, database_time(session))
        write_notes(session, audit_note(get_audit(session, audit_id).standing, "DELETE: the audit is deleted"))
