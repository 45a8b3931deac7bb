"""Take in an organisation, with nothing of its own yet."""

from collections.abc import Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.domain.organisation import Organisation, OrganisationInput, given_fields
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.organisations import get_organisation
from automation_pipeline.org_jobs.tables import OrganisationRow
from automation_pipeline.storage.bulk import insert_into
from automation_pipeline.storage.database import Database


def create_organisation(
    given: Mapping[str, object], *, within: Within, database: Database, clock: Clock, actor: str
) -> Organisation:
    """ConflictError when its id is taken, and for whoever belongs to one organisation."""
    wanted, now = given_fields(OrganisationInput, given, "organisation"), clock.now()
    if within.org_id is not None:
        raise ConflictError("Who belongs to an organisation makes no others.")
    columns = {**wanted.model_dump(), "created_at": now, "updated_at": now}
    with database.transaction() as session:
        insert = insert_into(session, OrganisationRow).values(columns).on_conflict_do_nothing()
        if session.scalar(insert.returning(OrganisationRow.id)) is None:
            raise ConflictError(f"There is an organisation '{wanted.id}' already: choose another id.")
        note(
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
