"""What is kept of agents' reports."""

import pytest

from automation_pipeline.org_jobs.models.states import OrgJobsRunState
from automation_pipeline.org_jobs.queries.agents import past_attempt
from automation_pipeline.org_jobs.rules.agents import PastAttempt
from automation_pipeline_tests.org_jobs.agent import Agent, an_agent
from automation_pipeline_tests.org_jobs.bench import Bench


@pytest.fixture
def agent(org_bench: Bench) -> Agent:
    return an_agent(org_bench)


def test_it_is_known_who_ended_an_attempt(agent: Agent) -> None:
    bench, lost = agent.bench, agent.begun()
    agent.reap(lost)
    (job,) = agent.claim()
    agent.result(job, "success")
    run = bench.run_by_id(job.run_id)
    with bench.database.reading() as session:
        found = [past_attempt(session, run, attempt_no) for attempt_no in (1, 2, 3)]
    assert found == [
        PastAttempt(OrgJobsRunState.FAILED, "STALE", was_reported=False),
        PastAttempt(OrgJobsRunState.SUCCESS, None, was_reported=True),
        None,
    ]
