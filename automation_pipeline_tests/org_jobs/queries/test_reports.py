"""What is kept of agents' reports."""

import pytest

from automation_pipeline.org_jobs.models.agents import ProgressReport
from automation_pipeline.org_jobs.models.states import OrgJobsRunState
from automation_pipeline.org_jobs.queries.agents import past_attempt, write_progress
from automation_pipeline.org_jobs.rules.attempts import PastAttempt
from automation_pipeline.org_jobs.tables import JobRunRow
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.org_jobs.agent import Agent, an_agent
from automation_pipeline_tests.org_jobs.bench import Bench


@pytest.fixture
def agent(org_bench: Bench) -> Agent:
    return an_agent(org_bench)


@pytest.mark.parametrize(
    ("before", "said", "after"),
    [
        (None, {}, {}),
        (None, {"percent": 0}, {"percent": 0}),
        ({"percent": 10}, {"message": "On it"}, {"percent": 10, "message": "On it"}),
        ({"percent": 10, "message": "On it"}, {"percent": 5}, {"percent": 5, "message": "On it"}),
    ],
)
def test_what_is_not_said_stays_as_it_was_said_before(
    clock: StandingClock, before: dict | None, said: dict, after: dict
) -> None:
    run = JobRunRow(progress=before)
    write_progress(run, ProgressReport(attempt_no=1, lease_token=1, **said), clock.now())
    assert (run.progress, run.progress_at) == (after, clock.now())


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
