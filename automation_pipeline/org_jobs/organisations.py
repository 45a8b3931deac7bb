"""Use cases of organisations, their hosts, servers and job types."""

from collections.abc import Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.models.job_types import (
    MOST_OWN_TYPES,
    JobTypeCard,
    OwnTypeFields,
    OwnTypeInput,
)
from automation_pipeline.org_jobs.models.organisations import (
    Host,
    HostInput,
    Organisation,
    OrganisationFields,
    OrganisationInput,
    OrgScope,
    Server,
    ServerInput,
    changed_fields,
    differences,
    given_fields,
    written_fields,
)
from automation_pipeline.org_jobs.queries.organisations import (
    active_jobs_of_host,
    add_audit_entry,
    as_card,
    as_host,
    as_organisation,
    as_server,
    change,
    check_host,
    count_jobs_of,
    count_schedules_of,
    count_servers_of,
    count_types,
    get_host,
    get_organisation,
    get_server,
    has_type,
    is_taken,
    leave_host,
    leave_server,
    locked_host,
    locked_organisation,
    locked_server,
    locked_type,
    move_waiting_jobs,
    uses_of,
)
from automation_pipeline.org_jobs.queries.schedule_changes import (
    resume_schedules,
    suspend_schedules,
)
from automation_pipeline.org_jobs.tables import HostRow, OrganisationRow, OrgJobTypeRow, ServerRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import insert_into


def create_organisation(
    given: Mapping[str, object], *, within: OrgScope, database: Database, clock: Clock, actor: str
) -> Organisation:
    """ConflictError when its id is taken, and for whoever belongs to one organisation."""
    wanted, now = given_fields(OrganisationInput, given, "organisation"), clock.now()
    if within.org_id is not None:
        raise ConflictError("Who belongs to an organisation makes no others.")
    columns = {**wanted.model_dump(), "created_at": now, "updated_at": now}
    with database.transaction() as session:
        insert = insert_into(session, OrganisationRow).values(columns).on_conflict_do_nothing()
        if session.scalar(insert.returning(OrganisationRow.id)) is None:
            raise ConflictError(
                f"There is an organisation '{wanted.id}' already: choose another id."
            )
        add_audit_entry(
            session,
            org_id=wanted.id,
            actor=actor,
            action="create",
            after=as_document(wanted),
            now=now,
            entity="organisation",
            entity_id=wanted.id,
        )
        return get_organisation(session, wanted.id, within)


def update_organisation(
    org_id: str,
    patch: Mapping[str, object],
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
) -> Organisation:
    """What the patch does not name stays; null ends the maintenance. What is at work goes on."""
    with database.transaction() as session:
        row, now = locked_organisation(session, org_id, within), clock.now()
        stored = as_organisation(row)
        changed = changed_fields(OrganisationFields, stored, patch, "organisation")
        before, after = differences(
            written_fields(OrganisationFields, stored), written_fields(OrganisationFields, changed)
        )
        if not after:
            return stored
        change(row, changed.model_dump(), now)
        add_audit_entry(
            session,
            org_id=org_id,
            actor=actor,
            action="update",
            before=before,
            after=after,
            now=now,
            entity="organisation",
            entity_id=org_id,
        )
        return as_organisation(row)


def suspend_organisation(
    org_id: str,
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    reason: str | None = None,
) -> Organisation:
    """Its active schedules are paused until it is resumed. One that is suspended already keeps its
    reason."""
    with database.transaction() as session:
        row, now = locked_organisation(session, org_id, within), clock.now()
        if row.suspended_at is not None:
            return as_organisation(row)
        change(row, {"suspended_at": now, "suspend_reason": reason}, now)
        paused = suspend_schedules(session, org_id, actor, now, reason)
        add_audit_entry(
            session,
            org_id=org_id,
            actor=actor,
            action="suspend",
            after={"paused": paused},
            reason=reason,
            now=now,
            entity="organisation",
            entity_id=org_id,
        )
        return as_organisation(row)


def resume_organisation(
    org_id: str, *, within: OrgScope, database: Database, clock: Clock, actor: str
) -> Organisation:
    """What somebody paused before or meanwhile stays paused. Nothing that was missed is made up
    for."""
    with database.transaction() as session:
        row, now = locked_organisation(session, org_id, within), clock.now()
        if row.suspended_at is None:
            return as_organisation(row)
        change(row, {"suspended_at": None, "suspend_reason": None}, now)
        resumed = resume_schedules(session, org_id, actor, now)
        add_audit_entry(
            session,
            org_id=org_id,
            actor=actor,
            action="resume",
            after={"resumed": resumed},
            now=now,
            entity="organisation",
            entity_id=org_id,
        )
        return as_organisation(row)


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


ENTITY = "job_type"


def create_job_type(
    given: Mapping[str, object],
    *,
    org_id: str,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
) -> JobTypeCard:
    """The name of a built-in type of agents replaces that type in the organisation. ConflictError
    when the organisation has defined the name already, or as many types as it may."""
    wanted = given_fields(OwnTypeInput, given, "job type")
    with database.transaction() as session:
        locked_organisation(session, org_id, within)
        if has_type(session, org_id, wanted.name):
            raise ConflictError(
                f"Organisation '{org_id}' defines a job type {wanted.name} already: update it."
            )
        if count_types(session, org_id) >= MOST_OWN_TYPES:
            raise ConflictError(
                f"Organisation '{org_id}' defines {MOST_OWN_TYPES} job types, which is the most: delete one."
            )
        now = clock.now()
        row = OrgJobTypeRow(org_id=org_id, **wanted.model_dump(), created_at=now, updated_at=now)
        session.add(row)
        session.flush()
        add_audit_entry(
            session,
            org_id=org_id,
            actor=actor,
            action="create",
            after=as_document(wanted),
            now=now,
            entity=ENTITY,
            entity_id=wanted.name,
        )
        return as_card(row)


def update_job_type(  # noqa: PLR0913  the collaborators by name
    name: str,
    patch: Mapping[str, object],
    *,
    org_id: str,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
) -> JobTypeCard:
    """A field that the patch does not name stays. Jobs keep the limit that they were created with.
    A schedule's payload is checked again when the schedule is saved or run."""
    with database.transaction() as session:
        locked_organisation(session, org_id, within)
        row, now = locked_type(session, org_id, name, within), clock.now()
        stored = as_card(row)
        wanted = changed_fields(OwnTypeFields, stored, patch, "job type")
        before, after = differences(written_fields(OwnTypeFields, stored), as_document(wanted))
        if not after:
            return stored
        for field, value in wanted.model_dump().items():
            setattr(row, field, value)
        row.updated_at = now
        add_audit_entry(
            session,
            org_id=org_id,
            actor=actor,
            action="update",
            before=before,
            after=after,
            now=now,
            entity=ENTITY,
            entity_id=name,
        )
        return as_card(row)


def delete_job_type(
    name: str, *, org_id: str, within: OrgScope, database: Database, clock: Clock, actor: str
) -> None:
    """ConflictError while schedules have the type, or jobs of it are not over."""
    with database.transaction() as session:
        locked_organisation(session, org_id, within)
        row = locked_type(session, org_id, name, within)
        schedules, jobs = uses_of(session, org_id, name)
        if schedules or jobs:
            raise ConflictError(
                f"Job type {name} is in use by {schedules} schedules and {jobs} jobs that are not over:"
                " delete or change the schedules, and wait for the jobs or cancel them."
            )
        add_audit_entry(
            session,
            org_id=org_id,
            actor=actor,
            action="delete",
            before=written_fields(OwnTypeInput, as_card(row)),
            now=clock.now(),
            entity=ENTITY,
            entity_id=name,
        )
        session.delete(row)
