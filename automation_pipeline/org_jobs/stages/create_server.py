"""Take in a server, on a host of its organisation or on none yet."""

from collections.abc import Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.domain.organisation import Server, ServerInput, given_fields
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.organisations import as_server, is_taken, locked_organisation
from automation_pipeline.org_jobs.store.places import check_host
from automation_pipeline.org_jobs.tables import ServerRow
from automation_pipeline.storage.database import Database


def create_server(
    given: Mapping[str, object], *, org_id: str, within: Within, database: Database, clock: Clock, actor: str
) -> Server:
    """InvalidInputError for a host that is not of the organisation, ConflictError for a name that is taken."""
    wanted = given_fields(ServerInput, given, "server")
    with database.transaction() as session:
        locked_organisation(session, org_id, within)
        check_host(session, wanted.host_id, org_id)
        if is_taken(session, ServerRow, org_id, wanted.name):
            raise ConflictError(f"Organisation '{org_id}' has a server '{wanted.name}' already: choose another name.")
        now = clock.now()
        row = ServerRow(org_id=org_id, **wanted.model_dump(), created_at=now, updated_at=now)
        session.add(row)
        session.flush()
        note(
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
