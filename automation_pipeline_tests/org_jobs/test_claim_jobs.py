"""What the agent of a host is given. Which jobs may be given at all: `store/test_claims`."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.storage.clock import database_now
from automation_pipeline_tests.org_jobs.agent import Agent, an_agent
from automation_pipeline_tests.org_jobs.bench import CHANGING, ORG, OTHER_ORG, READING, Bench


@pytest.fixture
def agent(org_bench: Bench) -> Agent:
    return an_agent(org_bench)


def test_a_job_comes_with_all_that_its_agent_needs(agent: Agent) -> None:
    bench = agent.bench
    payload = {"password": {"secretRef": "RCON_PASSWORD"}, "graceSeconds": 30}
    due = bench.now - timedelta(minutes=5)
    job_id = agent.wanted(payload=payload, scheduled_for=due)
    (job,) = agent.claim()
    run = bench.run_row(job_id)
    assert (job.run_id, job.job_id, job.type, job.payload) == (
        run.id,
        job_id,
        CHANGING.name,
        payload,
    )
    assert (job.attempt_no, job.max_attempts, job.lease_token, job.status) == (1, 3, 1, "pending")
    assert (job.server_instance_id, job.server_name) == (
        agent.server_id,
        bench.server_row(agent.server_id).name,
    )
    assert (job.scheduled_for, job.deadline_at, job.lease_expires_at) == (
        due,
        None,
        run.lease_until,
    )
    assert job.limit_seconds == 86_400
    name = bench.host_row(agent.host_id).name
    assert (run.status, run.lease_owner, run.host_id) == ("pending", f"agent:{name}", agent.host_id)


def test_its_lease_lasts_three_minutes_from_now_by_the_databases_clock(agent: Agent) -> None:
    with agent.bench.database.reading() as session:
        earlier = session.scalars(select(database_now(180))).one()
    job = agent.claimed()
    with agent.bench.database.reading() as session:
        later = session.scalars(select(database_now(180))).one()
    assert earlier <= job.lease_expires_at <= later


def test_a_job_keeps_the_limit_that_its_type_had(agent: Agent) -> None:
    of_type = READING.__class__(**{**vars(READING), "name": "OF_YESTERDAY", "limit_seconds": 77})
    job = agent.claimed(of_type=of_type)
    assert job.limit_seconds == 77


def test_many_that_read_are_given_at_once_and_one_that_changes(agent: Agent) -> None:
    for of_type in (READING, READING, CHANGING, CHANGING, READING):
        agent.wanted(of_type)
    assert [job.type for job in agent.claim(20)] == [
        READING.name,
        READING.name,
        CHANGING.name,
        READING.name,
    ]
    assert agent.claim(20) == []


def test_whoever_asks_for_jobs_is_heard_of(agent: Agent) -> None:
    agent.bench.set_host(agent.host_id, last_seen_at=None)
    assert agent.claim() == []
    assert agent.bench.host_row(agent.host_id).last_seen_at is not None


def test_a_host_of_another_organisation_does_not_exist(agent: Agent) -> None:
    agent.wanted()
    with pytest.raises(NotFoundError, match=f"Host {agent.host_id} not found"):
        agent.claim(within=OrgScope(OTHER_ORG))
    assert len(agent.claim(within=OrgScope(ORG))) == 1


def test_what_is_of_another_organisation_or_host_is_given_to_nobody_else(org_bench: Bench) -> None:
    agents = [an_agent(org_bench), an_agent(org_bench), an_agent(org_bench, OTHER_ORG)]
    wanted = [one.wanted() for one in agents]
    assert [[job.job_id for job in one.claim(20)] for one in agents] == [
        [job_id] for job_id in wanted
    ]
