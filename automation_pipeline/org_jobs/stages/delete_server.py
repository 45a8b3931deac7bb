"""Take a server away that nothing is or was done on."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.org_jobs.domain.organisation import ServerInput, written_fields
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.organisations import as_server, locked_server
from automation_pipeline.org_jobs.store.places import count_jobs_of, count_schedules_of, leave_server
from automation_pipeline.storage.database import Database


def delete_server(server_id: int, *, within: Within, database: Database, clock: Clock, actor: str) -> None:
    """ConflictError while it has schedules, or jobs that are kept."""
    with database.transaction() as session:
        row = locked_server(session, server_id, within, key_share=False)
        schedules, jobs = count_schedules_of(session, server_id), count_jobs_of(session, server_id)
        if schedules:
            raise ConflictError(
                f"Server {server_id} has {schedules} schedules: delete them, or move them to another server."
            )
        if jobs:
            raise ConflictError(
                f"Server {server_id} has {jobs} jobs, which are kept for a while: take it out of use instead "
                "(isEnabled: false), and delete it when they are gone."
            )
        leave_server(session, server_id)
        before = written_fields(ServerInput, as_server(row))
        note(
            session,
            org_id=row.org_id,
            actor=actor,
            action="delete",
            before=before,
            now=clock.now(),
            entity="server",
            entity_id=str(server_id),
        )
        session.delete(row)
