"""Take a host away. The attempts that its agent made remember it."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.org_jobs.domain.organisation import HostInput, written_fields
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.organisations import as_host, locked_host
from automation_pipeline.org_jobs.store.places import active_jobs_of_host, count_servers_of, leave_host
from automation_pipeline.storage.database import Database


def delete_host(host_id: int, *, within: Within, database: Database, clock: Clock, actor: str) -> None:
    """ConflictError while servers are on it, or jobs wait for its agent."""
    with database.transaction() as session:
        row = locked_host(session, host_id, within, key_share=False)
        servers, jobs = count_servers_of(session, host_id), active_jobs_of_host(session, host_id)
        if servers:
            raise ConflictError(f"Host {host_id} has {servers} servers: delete them, or move them to another host.")
        if jobs:
            raise ConflictError(f"The agent of host {host_id} is not done: wait for {jobs} jobs, or cancel them.")
        leave_host(session, host_id)
        before = written_fields(HostInput, as_host(row))
        note(
            session,
            org_id=row.org_id,
            actor=actor,
            action="delete",
            before=before,
            now=clock.now(),
            entity="host",
            entity_id=str(host_id),
        )
        session.delete(row)
