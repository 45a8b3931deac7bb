"""Give the agent of a host what it may begin now, for as long as its lease lasts."""

from automation_pipeline.core.clock import Clock
from automation_pipeline.org_jobs.domain.agent_job import LEASE_SECONDS, AgentJob, agent_name
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.agents import handed_out, host_of_agent, note_seen
from automation_pipeline.org_jobs.store.claims import claim_for_host
from automation_pipeline.org_jobs.store.openings import of_host, put_off_closed
from automation_pipeline.storage.database import Database


def claim_jobs(host_id: int, *, within: Within, database: Database, clock: Clock, most: int = 1) -> list[AgentJob]:
    """Most urgent first; nothing, where there is nothing to do or no place for it. What is not begun before its lease
    is over is free again."""
    with database.transaction() as session:
        host = host_of_agent(session, host_id, within)
        note_seen(session, host)
        put_off_closed(session, of_host(host.id, host.org_id), clock.now())
    with database.transaction() as session:
        claimed = claim_for_host(session, host, agent_name(host.name), most, LEASE_SECONDS, clock.now())
    return handed_out(claimed)
