"""Tell an agent that comes back what it had, so that it goes on with that."""

from automation_pipeline.org_jobs.domain.agent_job import AgentJob
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.agents import held_jobs, host_of_agent, note_seen
from automation_pipeline.storage.database import Database


def list_held_jobs(host_id: int, *, within: Within, database: Database) -> list[AgentJob]:
    """Oldest first, with the lease tokens that it had."""
    with database.transaction() as session:
        host = host_of_agent(session, host_id, within)
        note_seen(session, host)
        return held_jobs(session, host)
