"""Use cases of the job types that an organisation defines for its agents."""

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
    OrgScope,
    changed_fields,
    differences,
    given_fields,
    written_fields,
)
from automation_pipeline.org_jobs.queries.audit_log import add_audit_entry
from automation_pipeline.org_jobs.queries.job_types import (
    as_card,
    count_types,
    has_type,
    locked_type,
    uses_of,
)
from automation_pipeline.org_jobs.queries.organisations import locked_organisation
from automation_pipeline.org_jobs.tables import OrgJobTypeRow
from automation_pipeline.storage.database import Database

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
