"""Change an organisation's name, how much of it is at work at a time, or its maintenance."""

from collections.abc import Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.domain.audit_entry import differences
from automation_pipeline.org_jobs.domain.organisation import (
    Organisation,
    OrganisationFields,
    changed_fields,
    written_fields,
)
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.organisations import as_organisation, change, locked_organisation
from automation_pipeline.storage.database import Database


def update_organisation(
    org_id: str, patch: Mapping[str, object], *, within: Within, database: Database, clock: Clock, actor: str
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
        note(
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
