"""Change a server's name, move it to another host, or take it out of use."""

from collections.abc import Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.org_jobs.domain.audit_entry import differences
from automation_pipeline.org_jobs.domain.organisation import Server, ServerInput, changed_fields, written_fields
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.organisations import (
    as_server,
    change,
    get_server,
    is_taken,
    locked_organisation,
    locked_server,
)
from automation_pipeline.org_jobs.store.places import check_host, move_waiting_jobs
from automation_pipeline.org_jobs.tables import ServerRow
from automation_pipeline.storage.database import Database


def update_server(
    server_id: int, patch: Mapping[str, object], *, within: Within, database: Database, clock: Clock, actor: str
) -> Server:
    """What the patch does not name stays. Jobs that nobody has begun move with it; what is at work goes on where it
    is."""
    with database.transaction() as session:
        org_id = get_server(session, server_id, within).org_id
        locked_organisation(session, org_id, within)
        row, now = locked_server(session, server_id, within), clock.now()
        stored = as_server(row)
        changed = changed_fields(ServerInput, stored, patch, "server")
        before, after = differences(written_fields(ServerInput, stored), written_fields(ServerInput, changed))
        if not after:
            return stored
        if changed.name != stored.name and is_taken(session, ServerRow, org_id, changed.name):
            raise ConflictError(f"Organisation '{org_id}' has a server '{changed.name}' already: choose another name.")
        if changed.host_id != stored.host_id:
            check_host(session, changed.host_id, org_id)
            move_waiting_jobs(session, server_id, changed.host_id)
        change(row, changed.model_dump(), now)
        note(
            session,
            org_id=org_id,
            actor=actor,
            action="update",
            before=before,
            after=after,
            now=now,
            entity="server",
            entity_id=str(server_id),
        )
        return as_server(row)
