"""Queries of agents, hosts and past attempts."""

from datetime import timedelta

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.agents import past_attempt, record_agent_report
from automation_pipeline.org_jobs.models.agents import PastAttempt, agent_name
from automation_pipeline.org_jobs.models.jobs import OrgJobsRunState
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.queue import AttemptHold
from automation_pipeline_tests.org_jobs.agent import Agent, make_agent
from automation_pipeline_tests.org_jobs.data import CHANGING, ORG, OTHER_ORG, OrgJobsData


def test_a_host_is_found_by_its_id_and_by_its_run(data: OrgJobsData) -> None:
    agent = make_agent(data)
    job = agent.claimed()
    hold = AttemptHold(job.run_id, job.attempt_no, job.lease_token)
    with data.database.transaction() as session:
        for within in (ALL_ORGANISATIONS, OrgScope(ORG)):
            name = agent_name(data.host_row(agent.host_id).name)
            limit = timedelta(seconds=CHANGING.limit_seconds)
            assert record_agent_report(session, hold, within) == (name, limit)


def test_rows_of_another_organisation_are_not_found(data: OrgJobsData) -> None:
    agent = make_agent(data)
    job = agent.claimed()
    hold = AttemptHold(job.run_id, job.attempt_no, job.lease_token)
    with (
        data.database.transaction() as session,
        pytest.raises(NotFoundError, match=f"Job run {job.run_id} not found"),
    ):
        record_agent_report(session, hold, OrgScope(OTHER_ORG))


def test_run_on_a_host_of_another_organisation_is_not_found(
    data: OrgJobsData,
) -> None:
    """Use cases prevent this state; if it occurs, neither organisation sees the other."""
    job = make_agent(data).claimed()
    hold = AttemptHold(job.run_id, job.attempt_no, job.lease_token)
    data.set_run(job.run_id, host_id=data.host(OTHER_ORG))
    with data.database.transaction() as session:
        for within in (ALL_ORGANISATIONS, OrgScope(ORG), OrgScope(OTHER_ORG)):
            with pytest.raises(NotFoundError):
                record_agent_report(session, hold, within)


@pytest.fixture
def agent(data: OrgJobsData) -> Agent:
    return make_agent(data)


def test_past_attempt_says_whether_its_agent_reported(agent: Agent) -> None:
    data, lost = agent.data, agent.started()
    agent.reap(lost)
    (job,) = agent.claim()
    agent.result(job, "success")
    run = data.run_by_id(job.run_id)
    with data.database.reading() as session:
        found = [past_attempt(session, run, attempt_no) for attempt_no in (1, 2, 3)]
    assert found == [
        PastAttempt(OrgJobsRunState.FAILED, "STALE", was_reported=False),
        PastAttempt(OrgJobsRunState.SUCCESS, None, was_reported=True),
        None,
    ]
