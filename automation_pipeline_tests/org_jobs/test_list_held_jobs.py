"""What an agent has that comes back."""

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.agents import list_held_jobs
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline_tests.org_jobs.agent import Agent, an_agent
from automation_pipeline_tests.org_jobs.bench import OTHER_ORG, READING, SERVICE, Bench


@pytest.fixture
def agent(org_bench: Bench) -> Agent:
    return an_agent(org_bench)


def test_it_goes_on_with_what_it_has_claimed_and_begun(agent: Agent) -> None:
    begun, claimed = agent.begun(), agent.claimed(of_type=READING)
    agent.wanted(READING)
    held = agent.held()
    assert [(job.run_id, job.status) for job in held] == [
        (begun.run_id, "running"),
        (claimed.run_id, "pending"),
    ]
    assert held[1] == claimed
    assert held[0].deadline_at == agent.bench.run_by_id(begun.run_id).deadline_at
    agent.result(held[0], "success")
    agent.result(held[1], "success")
    assert agent.held() == []


def test_what_runs_is_its_own_until_it_is_given_up_and_what_was_claimed_until_its_lease_is_over(
    agent: Agent,
) -> None:
    begun, claimed = agent.begun(), agent.claimed(of_type=READING)
    agent.bench.expire_hold(begun.run_id)
    agent.bench.expire_hold(claimed.run_id)
    assert [job.run_id for job in agent.held()] == [begun.run_id]
    agent.reap(begun)
    assert agent.held() == []


def test_what_other_hosts_and_other_performers_have_is_not_told(agent: Agent) -> None:
    bench = agent.bench
    an_agent(bench).begun()
    an_agent(bench, OTHER_ORG).begun()
    bench.running_job(of_type=SERVICE)
    assert agent.held() == []


def test_a_host_of_another_organisation_does_not_exist(agent: Agent) -> None:
    agent.claimed()
    with pytest.raises(NotFoundError, match=f"Host {agent.host_id} not found"):
        list_held_jobs(agent.host_id, within=OrgScope(OTHER_ORG), database=agent.bench.database)


def test_whoever_asks_is_heard_of(agent: Agent) -> None:
    agent.bench.set_host(agent.host_id, last_seen_at=None)
    agent.held()
    assert agent.bench.host_row(agent.host_id).last_seen_at is not None
