"""Stop all that an organisation's schedules would begin. What is at work goes on to its end."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.domain.organisation import Organisation
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.organisations import as_organisation, change, locked_organisation
from automation_pipeline.org_jobs.store.suspensions import suspend_schedules
from automation_pipeline.storage.database import Database


def suspend_organisation(
    org_id: str, *, within: Within, database: Database, clock: Clock, actor: str, reason: str | None = None
) -> Organisation:
    """Its active schedules are paused until it is resumed. One that is suspended already keeps its reason."""
    with database.transaction() as session:
        row, now = locked_organisation(session, org_id, within), clock.now()
        if row.suspended_at is not None:
            return as_organisation(row)
        change(row, {"suspended_at": now, "suspend_reason": reason}, now)
        paused = suspend_schedules(session, org_id, actor, now, reason)
        note(
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
