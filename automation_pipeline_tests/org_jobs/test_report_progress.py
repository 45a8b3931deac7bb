"""An agent says that it is at work."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.agents import report_progress
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.storage.clock import database_now
from automation_pipeline_tests.org_jobs.agent import Agent, an_agent, of
from automation_pipeline_tests.org_jobs.bench import ORG, OTHER_ORG, READING, SERVICE, Bench

STOP = "stop working on it"


@pytest.fixture
def agent(org_bench: Bench) -> Agent:
    return an_agent(org_bench)


def test_the_first_word_begins_the_attempt(agent: Agent) -> None:
    bench, job = agent.bench, agent.claimed(of_type=READING)
    orders = agent.progress(job, percent=10, message="Begun")
    run = bench.run_by_id(job.run_id)
    assert (run.status, run.started_at, bench.job_row(job.job_id).status) == (
        "running",
        bench.now,
        "running",
    )
    assert (
        run.deadline_at
        == orders.deadline_at
        == bench.now + timedelta(seconds=READING.limit_seconds)
    )
    assert (orders.cancel_requested, orders.lease_expires_at) == (False, run.lease_until)
    assert (run.progress, run.progress_at) == ({"percent": 10, "message": "Begun"}, bench.now)
    assert bench.moves("job run", job.run_id) == [("pending", "running")]
    assert [event.payload["attemptNo"] for event in bench.events("job_run.started")] == [1]


def test_further_words_begin_nothing_and_move_no_deadline(agent: Agent) -> None:
    bench, job = agent.bench, agent.claimed()
    first = agent.progress(job, percent=10, message="Begun")
    bench.pass_minutes(2)
    second = agent.progress(job, percent=20)
    run = bench.run_by_id(job.run_id)
    assert second.deadline_at == first.deadline_at
    assert (run.progress, run.progress_at) == ({"percent": 20, "message": "Begun"}, bench.now)
    agent.progress(job, percent=0)
    assert bench.run_by_id(job.run_id).progress == {"percent": 0, "message": "Begun"}
    assert bench.moves("job run", job.run_id) == [("pending", "running")]
    assert len(bench.events("job_run.started")) == 1


def test_each_word_keeps_it_for_another_three_minutes(agent: Agent) -> None:
    job = agent.begun()
    agent.bench.set_run(job.run_id, lease_until=database_now(5.0))
    with agent.bench.database.reading() as session:
        earlier = session.scalars(select(database_now(180))).one()
    orders = agent.progress(job)
    assert orders.lease_expires_at >= earlier
    assert agent.bench.run_by_id(job.run_id).lease_until == orders.lease_expires_at


def test_it_is_told_that_the_job_is_to_be_cancelled(agent: Agent) -> None:
    job = agent.begun()
    agent.bench.set_run(job.run_id, cancel_requested_at=agent.bench.now)
    assert agent.progress(job).cancel_requested


def test_what_runs_is_its_own_until_it_is_given_up(agent: Agent) -> None:
    job = agent.begun()
    agent.bench.expire_hold(job.run_id)
    assert agent.progress(job).lease_expires_at > job.lease_expires_at
    agent.reap(job)
    with pytest.raises(ConflictError, match=STOP):
        agent.progress(job)


def test_what_was_claimed_only_is_free_again_when_its_lease_is_over(agent: Agent) -> None:
    job = agent.claimed()
    agent.bench.expire_hold(job.run_id)
    with pytest.raises(ConflictError, match=STOP):
        agent.progress(job)
    (again,) = agent.claim()
    assert (again.run_id, again.attempt_no, again.lease_token) == (job.run_id, 1, 2)
    with pytest.raises(
        ConflictError, match=f"Attempt 1 of job run {job.run_id} is not yours any more: {STOP}"
    ):
        agent.progress(job)
    assert agent.progress(again).cancel_requested is False


@pytest.mark.parametrize("said", [{"leaseToken": 2}, {"attemptNo": 2}])
def test_another_token_or_attempt_is_not_its_own(agent: Agent, said: dict[str, int]) -> None:
    job = agent.claimed()
    with pytest.raises(ConflictError, match=STOP):
        agent.progress(job, **said)
    assert agent.bench.run_by_id(job.run_id).status == "pending"


@pytest.mark.parametrize("status", ["success", "failed"])
def test_nothing_is_said_of_what_has_ended(agent: Agent, status: str) -> None:
    job = agent.begun()
    agent.result(job, status)
    before = agent.bench.run_by_id(job.run_id)
    with pytest.raises(ConflictError, match=STOP):
        agent.progress(job, percent=99)
    after = agent.bench.run_by_id(job.run_id)
    assert (after.progress, after.lease_until, after.status) == (
        before.progress,
        None,
        before.status,
    )


def test_faults_are_told_by_field_and_begin_nothing(agent: Agent) -> None:
    job = agent.claimed()
    with pytest.raises(InvalidInputError) as refused:
        agent.progress(job, percent=101)
    assert refused.value.fields == (("percent", "must be at most 100.0"),)
    assert agent.bench.run_by_id(job.run_id).status == "pending"


def test_a_run_of_another_organisation_of_no_host_or_of_no_agent_does_not_exist(
    agent: Agent,
) -> None:
    bench, job = agent.bench, agent.claimed()
    of_ours, of_none = bench.job(of_type=SERVICE, host_id=agent.host_id), bench.job()
    strange = [(job.run_id, OrgScope(OTHER_ORG))]
    strange += [(bench.run_row(one).id, OrgScope(ORG)) for one in (of_ours, of_none)]
    for run_id, within in [*strange, (987654, OrgScope(None))]:
        with pytest.raises(NotFoundError, match=f"Job run {run_id} not found"):
            report_progress(run_id, of(job), within=within, **agent.on)
    assert bench.run_by_id(job.run_id).status == "pending"
    assert agent.progress(job, within=OrgScope(ORG)).cancel_requested is False


def test_whoever_reports_is_heard_of_also_when_refused(agent: Agent) -> None:
    job = agent.claimed()
    agent.bench.set_host(agent.host_id, last_seen_at=None)
    agent.bench.expire_hold(job.run_id)
    with pytest.raises(ConflictError):
        agent.progress(job)
    assert agent.bench.host_row(agent.host_id).last_seen_at is not None
