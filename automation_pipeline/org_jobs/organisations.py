"""Use cases of organisations."""

from collections.abc import Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.models.organisations import (
    Organisation,
    OrganisationFields,
    OrganisationInput,
    OrgScope,
    changed_fields,
    differences,
    given_fields,
    written_fields,
)
from automation_pipeline.org_jobs.queries.audit_log import add_audit_entry
from automation_pipeline.org_jobs.queries.organisations import (
    as_organisation,
    change,
    get_organisation,
    locked_organisation,
)
from automation_pipeline.org_jobs.queries.schedule_changes import (
    resume_schedules,
    suspend_schedules,
)
from automation_pipeline.org_jobs.tables import OrganisationRow
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
