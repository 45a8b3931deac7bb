"""Let an organisation that was suspended go on: the schedules that were paused with it, from now on."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.domain.organisation import Organisation
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.organisations import as_organisation, change, locked_organisation
from automation_pipeline.org_jobs.store.suspensions import resume_schedules
from automation_pipeline.storage.database import Database


def resume_organisation(org_id: str, *, within: Within, database: Database, clock: Clock, actor: str) -> Organisation:
    """What somebody paused before or meanwhile stays paused. Nothing that was missed is made up for."""
    with database.transaction() as session:
        row, now = locked_organisation(session, org_id, within), clock.now()
        if row.suspended_at is None:
            return as_organisation(row)
        change(row, {"suspended_at": None, "suspend_reason": None}, now)
        resumed = resume_schedules(session, org_id, actor, now)
        note(
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
