"""What people do to audits: several at once, each in a process of their own; and audits that they
may not touch."""

from automation_pipeline.audits.reviews import delete_audit, review_control_point
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.storage.database import Database


def overrule(database_url: str, audit_id: int, position: int, index: int, times: int) -> None:
    """So many comments, and at last the statut."""
    database = Database(database_url)
    for time in range(times):
        given = {"commentaire": f"Heard {time}.", "reviewer": f"person {index}"}
        review_control_point(audit_id, position, index, given, database=database)
    review_control_point(audit_id, position, index, {"statut": "PRESENT"}, database=database)
    database.dispose()


def put(database: Database, audit_id: int, state: str) -> None:
    """Into one of the states in which nobody may change it: running, failed or deleted."""
    if state == "deleted":
        delete_audit(audit_id, database=database)
        return
    with database.transaction() as session:
        session.get_one(AuditRow, audit_id).status = state
