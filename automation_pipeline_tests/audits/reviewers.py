"""Reviews by several processes, and audits in states that refuse changes."""

from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.reviews import record_review, set_audit_deleted
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.storage.database import Database


def record_reviews(database_url: str, audit_id: int, position: int, index: int, times: int) -> None:
    """Record `times` comments, then the statut."""
    database = Database(database_url)
    for number in range(times):
        given = {"commentaire": f"Comment {number}.", "reviewer": f"person {index}"}
        record_review(StepLocation(audit_id, position, index), given, database=database)
    record_review(StepLocation(audit_id, position, index), {"statut": "PRESENT"}, database=database)
    database.dispose()


def set_state(database: Database, audit_id: int, state: str) -> None:
    """Set a state that refuses changes: running, incomplete, failed or deleted."""
    if state == "deleted":
        set_audit_deleted(audit_id, deleted=True, database=database)
        return
    with database.transaction() as session:
        row = session.get_one(AuditRow, audit_id)
        row.status, row.score_percentage = state, None
