"""Take in a host, for an agent to work on."""

from collections.abc import Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.domain.organisation import Host, HostInput, given_fields
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.organisations import as_host, is_taken, locked_organisation
from automation_pipeline.org_jobs.tables import HostRow
from automation_pipeline.storage.database import Database


def create_host(
    given: Mapping[str, object], *, org_id: str, within: Within, database: Database, clock: Clock, actor: str
) -> Host:
    """ConflictError when another host of the organisation has its name."""
    wanted = given_fields(HostInput, given, "host")
    with database.transaction() as session:
        locked_organisation(session, org_id, within)
        if is_taken(session, HostRow, org_id, wanted.name):
            raise ConflictError(f"Organisation '{org_id}' has a host '{wanted.name}' already: choose another name.")
        now = clock.now()
        row = HostRow(org_id=org_id, **wanted.model_dump(), created_at=now, updated_at=now)
        session.add(row)
        session.flush()
        note(
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
