"""Change a host's name or its maintenance."""

from collections.abc import Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.org_jobs.domain.audit_entry import differences
from automation_pipeline.org_jobs.domain.organisation import Host, HostInput, changed_fields, written_fields
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.organisations import (
    as_host,
    change,
    get_host,
    is_taken,
    locked_host,
    locked_organisation,
)
from automation_pipeline.org_jobs.tables import HostRow
from automation_pipeline.storage.database import Database


def update_host(
    host_id: int, patch: Mapping[str, object], *, within: Within, database: Database, clock: Clock, actor: str
) -> Host:
    """What the patch does not name stays; null ends the maintenance. What its agent is at goes on."""
    with database.transaction() as session:
        org_id = get_host(session, host_id, within).org_id
        locked_organisation(session, org_id, within)
        row, now = locked_host(session, host_id, within), clock.now()
        stored = as_host(row)
        changed = changed_fields(HostInput, stored, patch, "host")
        before, after = differences(written_fields(HostInput, stored), written_fields(HostInput, changed))
        if not after:
            return stored
        if changed.name != stored.name and is_taken(session, HostRow, org_id, changed.name):
            raise ConflictError(f"Organisation '{org_id}' has a host '{changed.name}' already: choose another name.")
        change(row, changed.model_dump(), now)
        note(
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
