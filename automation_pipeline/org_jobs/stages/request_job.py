"""Ask for a job without a schedule."""

from collections.abc import Collection, Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.domain.job_types import job_type
from automation_pipeline.org_jobs.domain.job_wishes import read_wish
from automation_pipeline.org_jobs.domain.org_job import USUAL_RETRIES, OrgJob
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.job_views import get_job
from automation_pipeline.org_jobs.store.new_jobs import NewJob, add_jobs
from automation_pipeline.org_jobs.store.organisations import get_organisation
from automation_pipeline.org_jobs.store.retried_jobs import host_of_server
from automation_pipeline.storage.database import Database


def request_job(  # noqa: PLR0913  the collaborators by name
    given: Mapping[str, object],
    *,
    org_id: str,
    within: Within,
    database: Database,
    clock: Clock,
    actor: str,
    call_origins: Collection[str] = (),
) -> OrgJob:
    """InvalidInputError names every field at fault. In an organisation that is suspended it waits."""
    wish, now = read_wish(given, call_origins=call_origins), clock.now()
    with database.transaction() as session:
        get_organisation(session, org_id, within)
        job = NewJob(
            org_id=org_id,
            type=job_type(wish.type),
            payload=wish.payload,
            retry=wish.retry_policy or USUAL_RETRIES,
            created_by=actor,
            priority=wish.priority,
            server_instance_id=wish.server_instance_id,
            host_id=host_of_server(session, wish.server_instance_id, org_id),
        )
        [job_id] = add_jobs(session, [job], now)
        note(
            session,
            org_id=org_id,
            actor=actor,
            action="request",
            entity="job",
            entity_id=str(job_id),
            after={"type": wish.type},
            now=now,
        )
        session.flush()
        return get_job(session, job_id, within)
