"""Say that an attempt is at work."""

from automation_pipeline.automation.domain.run import RunTicket
from automation_pipeline.automation.store.runs import beat
from automation_pipeline.storage.database import Database


def keep_alive(ticket: RunTicket, worker: str, *, database: Database) -> None:
    with database.transaction() as session:
        beat(session, ticket, worker)
