"""Note that the agent of a host was heard of."""

from automation_pipeline.org_jobs.domain.organisation import Host
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.agents import host_of_agent, note_seen
from automation_pipeline.org_jobs.store.organisations import get_host
from automation_pipeline.storage.database import Database


def greet_host(host_id: int, *, within: Within, database: Database, agent_version: str | None = None) -> Host:
    """A transaction of its own: whoever waits for jobs keeps nobody from the host."""
    with database.transaction() as session:
        note_seen(session, host_of_agent(session, host_id, within), agent_version)
        return get_host(session, host_id, within)
