"""Store a new schedule. It is due from now on, if it is enabled."""

from collections.abc import Collection, Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule, input_document
from automation_pipeline.org_jobs.domain.schedule_rules import read_schedule, refuse_never_due
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.organisations import locked_organisation
from automation_pipeline.org_jobs.store.schedule_writes import check_server, tell
from automation_pipeline.org_jobs.store.schedules import add_schedule, as_schedule
from automation_pipeline.storage.database import Database


def create_schedule(  # noqa: PLR0913  the collaborators by name
    given: Mapping[str, object],
    *,
    org_id: str,
    within: Within,
    database: Database,
    clock: Clock,
    actor: str,
    call_origins: Collection[str] = (),
) -> OrgSchedule:
    """InvalidInputError names every field at fault. In an organisation that is suspended it waits with the others."""
    wanted = read_schedule(given, call_origins=call_origins)
    with database.transaction() as session:
        organisation, now = locked_organisation(session, org_id, within), clock.now()
        refuse_never_due(wanted, now)
        check_server(session, wanted.server_instance_id, org_id)
        is_suspended = organisation.suspended_at is not None
        row = add_schedule(session, wanted, org_id=org_id, is_suspended=is_suspended, actor=actor, now=now)
        tell(session, row, "create", actor=actor, now=now, after=input_document(wanted))
        return as_schedule(row)
