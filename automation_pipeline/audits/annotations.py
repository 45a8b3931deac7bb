"""Annotations of an audit: notes, links to an automation, deletion and restoration. Findings stay."""

from collections.abc import Mapping

from automation_pipeline.audits.events import audit_note
from automation_pipeline.audits.models.requests import INVALID_CHANGE, AuditChange
from automation_pipeline.audits.queries.audits import (
    get_audit,
    is_deleted,
    set_deleted,
    triggered_by,
    update_audit_row,
)
from automation_pipeline.audits.queries.documents import audit_document
from automation_pipeline.audits.queries.requests import check_automation_links
from automation_pipeline.core.json_model import parse
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.workflow_logs import write_notes

LINKS = ("automation_schedule_id", "automation_run_id")


def update_audit(
    audit_id: int, given: Mapping[str, object], *, database: Database
) -> dict[str, object]:
    """Apply an `AuditChange` and return the audit's document. Null clears a field, others stay."""
    values = parse(AuditChange, given, INVALID_CHANGE).model_dump(exclude_unset=True)
    with database.transaction() as session:
        audit = get_audit(session, audit_id).summary
        changed_links = {name: values[name] for name in LINKS if name in values}
        if changed_links:
            check_automation_links(
                session, {**_stored_links(session, audit_id), **changed_links}, INVALID_CHANGE
            )
        if "deleted" in values:
            _set_deleted(session, audit_id, deleted=values.pop("deleted"))
        if values:
            update_audit_row(session, audit_id, values)
        if given:
            write_notes(session, audit_note(audit, f"UPDATE: {', '.join(sorted(given))}"))
        return audit_document(session, audit_id)


def _stored_links(session: Session, audit_id: int) -> dict[str, int | None]:
    stored = triggered_by(session, audit_id)
    return {name: None if stored[name] is None else int(str(stored[name])) for name in LINKS}


def _set_deleted(session: Session, audit_id: int, *, deleted: bool) -> None:
    """Set the mark first, because every writer locks the fiche's row before the audit's. Deleting again
    keeps the first time."""
    if deleted != is_deleted(session, audit_id):
        set_deleted(session, audit_id, database_time(session) if deleted else None)


def delete_audit(audit_id: int, *, database: Database) -> None:
    """Mark the audit as deleted. `restore_audit` reverts this."""
    with database.transaction() as session:
        set_deleted(session, audit_id, database_time(session))
        write_notes(
            session,
            audit_note(get_audit(session, audit_id).summary, "DELETE: the audit is deleted"),
        )


def restore_audit(audit_id: int, *, database: Database) -> None:
    """Remove the mark of a deleted audit."""
    with database.transaction() as session:
        set_deleted(session, audit_id, None)
        write_notes(
            session,
            audit_note(get_audit(session, audit_id).summary, "RESTORE: the audit is not deleted"),
        )
