"""Queries of agents, hosts and past attempts."""

from datetime import timedelta

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.agents import past_attempt, record_agent_report
from automation_pipeline.org_jobs.models.agents import PastAttempt, agent_name
from automation_pipeline.org_jobs.models.jobs import OrgJobsRunState
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.queue import AttemptHold
from automation_pipeline_tests.org_jobs.agent import Agent, an_agent
from automation_pipeline_tests.org_jobs.bench import CHANGING, ORG, OTHER_ORG, Bench


def test_a_host_is_found_by_its_id_and_by_its_run(org_bench: Bench) -> None:
    agent = an_agent(org_bench)
    job = agent.claimed()
    hold = AttemptHold(job.run_id, job.attempt_no, job.lease_token)
    with org_bench.database.transaction() as session:
        for within in (ALL_ORGANISATIONS, OrgScope(ORG)):
            name = agent_name(org_bench.host_row(agent.host_id).name)
            limit = timedelta(seconds=CHANGING.limit_seconds)
            assert record_agent_report(session, hold, within) == (name, limit)


def test_rows_of_another_organisation_are_not_found(org_bench: Bench) -> None:
    agent = an_agent(org_bench)
    job = agent.claimed()
    hold = AttemptHold(job.run_id, job.attempt_no, job.lease_token)
    with (
        org_bench.database.transaction() as session,
        pytest.raises(NotFoundError, match=f"Job run {job.run_id} not found"),
    ):
        record_agent_report(session, hold, OrgScope(OTHER_ORG))


def test_run_on_a_host_of_another_organisation_is_not_found(
    org_bench: Bench,
) -> None:
    """Use cases prevent this state; if it occurs, neither organisation sees the other."""
    job = an_agent(org_bench).claimed()
    hold = AttemptHold(job.run_id, job.attempt_no, job.lease_token)
    org_bench.set_run(job.run_id, host_id=org_bench.host(OTHER_ORG))
    with org_bench.database.transaction() as session:
        for within in (ALL_ORGANISATIONS, OrgScope(ORG), OrgScope(OTHER_ORG)):
            with pytest.raises(NotFoundError):
                record_agent_report(session, hold, within)


@pytest.fixture
def agent(org_bench: Bench) -> Agent:
    return an_agent(org_bench)


def test_past_attempt_says_whether_its_agent_reported(agent: Agent) -> None:
    bench, lost = agent.bench, agent.started()
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
