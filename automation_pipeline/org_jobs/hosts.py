"""Use cases of hosts and servers."""

from collections.abc import Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.models.organisations import (
    Host,
    HostInput,
    OrgScope,
    Server,
    ServerInput,
    changed_fields,
    differences,
    given_fields,
    written_fields,
)
from automation_pipeline.org_jobs.queries.audit_log import add_audit_entry
from automation_pipeline.org_jobs.queries.organisations import (
    active_jobs_of_host,
    as_host,
    as_server,
    change,
    check_host,
    count_jobs_of,
    count_schedules_of,
    count_servers_of,
    get_host,
    get_server,
    is_taken,
    leave_host,
    leave_server,
    locked_host,
    locked_organisation,
    locked_server,
    move_waiting_jobs,
)
from automation_pipeline.org_jobs.tables import HostRow, ServerRow
from automation_pipeline.storage.database import Database


def create_host(
    given: Mapping[str, object],
    *,
    org_id: str,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
) -> Host:
    """ConflictError when another host of the organisation has its name."""
    wanted = given_fields(HostInput, given, "host")
    with database.transaction() as session:
        locked_organisation(session, org_id, within)
        if is_taken(session, HostRow, org_id, wanted.name):
            raise ConflictError(
                f"Organisation '{org_id}' has a host '{wanted.name}' already: choose another name."
            )
        now = clock.now()
        row = HostRow(org_id=org_id, **wanted.model_dump(), created_at=now, updated_at=now)
        session.add(row)
        session.flush()
        add_audit_entry(
            session,
            org_id=org_id,
            actor=actor,
            action="create",
            after=as_document(wanted),
            now=now,
            entity="host",
            entity_id=str(row.id),
        )
        return as_host(row)


def update_host(
    host_id: int,
    patch: Mapping[str, object],
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
) -> Host:
    """What the patch does not name stays; null ends the maintenance. What its agent is at goes
    on."""
    with database.transaction() as session:
        org_id = get_host(session, host_id, within).org_id
        locked_organisation(session, org_id, within)
        row, now = locked_host(session, host_id, within), clock.now()
        stored = as_host(row)
        changed = changed_fields(HostInput, stored, patch, "host")
        before, after = differences(
            written_fields(HostInput, stored), written_fields(HostInput, changed)
        )
        if not after:
            return stored
        if changed.name != stored.name and is_taken(session, HostRow, org_id, changed.name):
            raise ConflictError(
                f"Organisation '{org_id}' has a host '{changed.name}' already: choose another name."
            )
        change(row, changed.model_dump(), now)
        add_audit_entry(
            session,
            org_id=org_id,
            actor=actor,
            action="update",
            before=before,
            after=after,
            now=now,
            entity="host",
            entity_id=str(host_id),
        )
        return as_host(row)


def delete_host(
    host_id: int, *, within: OrgScope, database: Database, clock: Clock, actor: str
) -> None:
    """ConflictError while servers are on it, or jobs wait for its agent."""
    with database.transaction() as session:
        row = locked_host(session, host_id, within, key_share=False)
        servers, jobs = count_servers_of(session, host_id), active_jobs_of_host(session, host_id)
        if servers:
            raise ConflictError(
                f"Host {host_id} has {servers} servers: delete them, or move them to another host."
            )
        if jobs:
            raise ConflictError(
                f"The agent of host {host_id} is not done: wait for {jobs} jobs, or cancel them."
            )
        leave_host(session, host_id)
        before = written_fields(HostInput, as_host(row))
        add_audit_entry(
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


def create_server(
    given: Mapping[str, object],
    *,
    org_id: str,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
) -> Server:
    """InvalidInputError for a host that is not of the organisation, ConflictError for a name that
    is taken."""
    wanted = given_fields(ServerInput, given, "server")
    with database.transaction() as session:
        locked_organisation(session, org_id, within)
        check_host(session, wanted.host_id, org_id)
        if is_taken(session, ServerRow, org_id, wanted.name):
            raise ConflictError(
                f"Organisation '{org_id}' has a server '{wanted.name}' already: choose another name."
            )
        now = clock.now()
        row = ServerRow(org_id=org_id, **wanted.model_dump(), created_at=now, updated_at=now)
        session.add(row)
        session.flush()
        add_audit_entry(
            session,
            org_id=org_id,
            actor=actor,
            action="create",
            after=as_document(wanted),
            now=now,
            entity="server",
            entity_id=str(row.id),
        )
        return as_server(row)


def update_server(
    server_id: int,
    patch: Mapping[str, object],
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
) -> Server:
    """What the patch does not name stays. Jobs that nobody has begun move with it; what is at work
    goes on where it is."""
    with database.transaction() as session:
        org_id = get_server(session, server_id, within).org_id
        locked_organisation(session, org_id, within)
        row, now = locked_server(session, server_id, within), clock.now()
        stored = as_server(row)
        changed = changed_fields(ServerInput, stored, patch, "server")
        before, after = differences(
            written_fields(ServerInput, stored), written_fields(ServerInput, changed)
        )
        if not after:
            return stored
        if changed.name != stored.name and is_taken(session, ServerRow, org_id, changed.name):
            raise ConflictError(
                f"Organisation '{org_id}' has a server '{changed.name}' already: choose another name."
            )
        if changed.host_id != stored.host_id:
            check_host(session, changed.host_id, org_id)
            move_waiting_jobs(session, server_id, changed.host_id)
        change(row, changed.model_dump(), now)
        add_audit_entry(
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


def delete_server(
    server_id: int, *, within: OrgScope, database: Database, clock: Clock, actor: str
) -> None:
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
        add_audit_entry(
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
