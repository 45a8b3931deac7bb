"""Workflow log entries are stored with their subject and masked."""

from sqlalchemy import select

from automation_pipeline.core.events import WorkflowLogEntry
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import WorkflowLogRow, write_notes


def test_the_data_of_a_log_entry_is_masked(database: Database) -> None:
    data = {"headers": {"Authorization": "Bearer hush"}, "to": ["anna@host.test"], "tokens": 7}
    with database.transaction() as session:
        write_notes(
            session,
            WorkflowLogEntry("audit", "fiche", "1", "9", "Sent", data=data),
            WorkflowLogEntry("audit", "fiche", "2", "9", "No"),
        )
    with database.reading() as session:
        rows = session.scalars(select(WorkflowLogRow).order_by(WorkflowLogRow.id)).all()
    assert [(row.entity_id, row.message) for row in rows] == [("1", "Sent"), ("2", "No")]
    assert rows[0].data == {
        "headers": {"Authorization": "[masked]"},
        "to": ["[masked]"],
        "tokens": 7,
    }
    assert rows[1].data == {}
