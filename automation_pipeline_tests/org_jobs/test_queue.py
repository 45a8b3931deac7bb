"""Workers are requested for runs, fairly and once."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.org_jobs.jobs import release_jobs
from automation_pipeline.org_jobs.runs import work_job
from automation_pipeline.storage.run_requests import (
    RunRequestRow,
    mark_refused,
    mark_taken,
    offer_waiting,
)
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests import waiting
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.org_jobs import processes
from automation_pipeline_tests.org_jobs.agent import make_agent
from automation_pipeline_tests.org_jobs.data import CHANGING, ORG, OTHER_ORG, SERVICE, OrgJobsData
from automation_pipeline_tests.org_jobs.runners import LocalWork
from automation_pipeline_tests.processes import run_in_processes

LATER = timedelta(minutes=5)


def release(data: OrgJobsData, limit: int = 20) -> list[int]:
    """Release jobs; return their ids."""
    released = release_jobs(database=data.database, clock=data.clock, limit=limit)
    return sorted(data.run_by_id(run_id).job_id for run_id in released)


def request_states(data: OrgJobsData) -> list[str]:
    return list(data.rows(select(RunRequestRow.state).order_by(RunRequestRow.id)))


def service_jobs(data: OrgJobsData, count: int, org_id: str = ORG, **of_job: object) -> list[int]:
    return [data.job(org_id, SERVICE, **of_job) for _ in range(count)]


def test_worker_is_requested_once_with_its_tags(data: OrgJobsData) -> None:
    schedule = data.schedule(
        job_type=SERVICE.name, overlap_policy=OverlapPolicy.SKIP, server_instance_id=None
    )
    fire_id, server_id = data.fire(schedule), data.server()
    job_id = data.job(
        of_type=SERVICE, schedule_id=schedule, fire_id=fire_id, server_instance_id=server_id
    )
    assert (release(data), release(data)) == ([job_id], [])
    run = data.run_row(job_id)
    [tags] = data.rows(select(RunRequestRow.tags))
    assert data.requests() == [(f"org-job-{run.id}-1", {"job_run_id": run.id})]
    assert (run.requested_at, run.requests, run.status) == (data.now, 1, "pending")
    assert tags == {
        "org_jobs/org_id": ORG,
        "org_jobs/job_id": str(job_id),
        "org_jobs/job_run_id": str(run.id),
        "org_jobs/schedule_id": schedule,
        "org_jobs/server_instance_id": str(server_id),
        "org_jobs/trigger": "CRON",
    }


def test_no_worker_is_requested_for_jobs_of_agents(data: OrgJobsData) -> None:
    data.job(of_type=CHANGING)
    assert release(data) == []


def test_missing_worker_is_requested_again_under_another_key(data: OrgJobsData) -> None:
    [job_id] = service_jobs(data, 1)
    release(data)
    data.clock.advance(LATER - timedelta(seconds=1))
    assert release(data) == []
    data.clock.advance(timedelta(seconds=1))
    assert release(data) == [job_id]
    run_id = data.run_row(job_id).id
    assert [key for key, _ in data.requests()] == [
        f"org-job-{run_id}-1",
        f"org-job-{run_id}-2",
    ]
    assert request_states(data) == ["refused", "waiting"]


@pytest.mark.parametrize("is_taken", [False, True])
def test_queued_worker_is_not_requested_again_for_an_hour(
    data: OrgJobsData, is_taken: bool
) -> None:
    [job_id, other] = service_jobs(data, 2)
    assert release(data, 1) == [job_id]
    with data.database.transaction() as session:
        [request] = offer_waiting(session, limit=9)
        if is_taken:
            mark_taken(session, request.key, "dagster-run-1")
    data.clock.advance(timedelta(minutes=59))
    assert release(data, 1) == []
    assert release(data, 2) == [other]
    data.clock.advance(timedelta(minutes=1))
    assert release(data, 2) == [job_id]
    assert request_states(data) == ["taken" if is_taken else "refused", "waiting", "waiting"]


def test_refused_worker_is_requested_again(data: OrgJobsData) -> None:
    [job_id] = service_jobs(data, 1)
    release(data)
    with data.database.transaction() as session:
        [request] = offer_waiting(session, limit=9)
        mark_refused(session, request.key, "Dagster could not launch it.")
    data.clock.advance(LATER)
    assert release(data) == [job_id]


def test_organisations_are_served_in_turn(data: OrgJobsData) -> None:
    many, few = service_jobs(data, 6), service_jobs(data, 2, OTHER_ORG)
    assert release(data, 4) == sorted([*many[:2], *few])
    assert release(data, 5) == many[2:3]


def test_organisation_with_fewer_running_jobs_comes_first(data: OrgJobsData) -> None:
    for _ in range(2):
        data.running_job(of_type=SERVICE)
    service_jobs(data, 2)
    [late] = service_jobs(data, 1, OTHER_ORG)
    assert release(data, 3) == [late]


def test_most_urgent_runs_of_an_organisation_come_first(data: OrgJobsData) -> None:
    jobs = [service_jobs(data, 1, priority=priority)[0] for priority in (5, 9, 1, 5)]
    assert release(data, 1) == [jobs[2]]
    assert release(data, 3) == sorted([jobs[0], jobs[3]])


def test_limits_of_running_jobs_are_kept(data: OrgJobsData) -> None:
    data.organisation(max_running=2)
    data.running_job(of_type=CHANGING)
    jobs, others = service_jobs(data, 3), service_jobs(data, 3, OTHER_ORG)
    assert release(data, 3) == sorted([jobs[0], *others[:2]])
    assert release(data, 3) == []
    assert release(data, 0) == []
    assert release(data, 20) == others[2:]


def test_remote_run_counts_only_for_its_organisation(
    data: OrgJobsData,
) -> None:
    data.organisation(max_running=2)
    for number in range(2):
        followed = data.running_job(of_type=SERVICE)
        data.set_run(data.run_row(followed).id, lease_until=None, following={"runId": str(number)})
    service_jobs(data, 1)
    others = service_jobs(data, 2, OTHER_ORG)
    assert release(data, 2) == others


def test_idle_organisation_comes_before_a_busy_one(data: OrgJobsData) -> None:
    many = service_jobs(data, 6, priority=1)
    assert release(data, 3) == many[:3]
    [late] = service_jobs(data, 1, OTHER_ORG, priority=9)
    assert release(data, 3) == []
    data.set_run(data.run_row(many[0]).id, status="cancelled", finished_at=data.now)
    assert release(data, 3) == [late]


@pytest.mark.parametrize("releases_before_the_claim", [False, True])
def test_urgent_service_job_starts_despite_busy_agents(
    data: OrgJobsData, releases_before_the_claim: bool
) -> None:
    """The agent claims again at once, before or after the queue is released."""
    data.organisation(max_running=1)
    agent, runner = make_agent(data), LocalWork()
    for _ in range(4):
        agent.add_job(priority=9)
    held = agent.claim()
    [urgent] = service_jobs(data, 1, priority=1)
    rounds = 0
    while data.run_row(urgent).status == "pending" and rounds < 4:
        for job in held:
            agent.result(job, "success")
        released = release(data) if releases_before_the_claim else []
        held = agent.claim()
        if released or release(data):
            work(data, urgent, runner)
        rounds += 1
    assert (data.run_row(urgent).status, len(runner.contexts), held, rounds) == (
        "success",
        1,
        [],
        1,
    )
    assert len(agent.claim()) == 1


def work(data: OrgJobsData, job_id: int, runner: LocalWork) -> None:
    run_id, runners = data.run_row(job_id).id, {SERVICE.name: runner}
    waiting.run_with_fake_time(
        work_job(run_id, runners=runners, lease_seconds=3600.0, owner="worker", **data.services)
    )


@pytest.mark.parametrize(
    "columns",
    [
        {"next_attempt_at": "later"},
        {"cancel_requested_at": "now"},
        {"lease_until": database_now(60.0)},
    ],
)
def test_no_worker_is_requested_for_runs_that_cannot_start(
    data: OrgJobsData, columns: dict[str, object]
) -> None:
    times = {"later": data.now + LATER, "now": data.now}
    values = {
        name: times.get(value, value) if isinstance(value, str) else value
        for name, value in columns.items()
    }
    service_jobs(data, 1, run=values)
    assert release(data) == []


@pytest.mark.parametrize("closed", ["suspended_at", "maintenance_until"])
def test_no_worker_is_requested_for_a_closed_organisation(data: OrgJobsData, closed: str) -> None:
    service_jobs(data, 1)
    [job_id] = service_jobs(data, 1, OTHER_ORG)
    data.organisation(**{closed: data.now + LATER})
    assert release(data) == [job_id]


def test_worker_is_requested_for_the_first_of_serial_runs(data: OrgJobsData) -> None:
    first, second = service_jobs(data, 2, line="a")
    assert release(data) == [first]
    data.set_run(data.run_row(first).id, status="cancelled", finished_at=data.now)
    assert release(data) == [second]


def test_concurrent_releases_request_each_run_once_within_the_limit(data: OrgJobsData) -> None:
    jobs = service_jobs(data, 6)
    url = data.database.url.render_as_string(hide_password=False)
    released = run_in_processes(processes.release, *[(url, data.now, 4)] * 4)
    assert len(released[0] + released[1] + released[2] + released[3]) == len(data.requests()) == 4
    assert [data.run_row(job_id).requests for job_id in jobs] == [1, 1, 1, 1, 0, 0]


def test_the_number_of_queries_does_not_grow_with_the_runs(data: OrgJobsData) -> None:
    services = {"database": data.database, "clock": data.clock}
    service_jobs(data, 1)
    with statements(data.database) as for_one:
        assert len(release_jobs(**services, limit=20)) == 1
    service_jobs(data, 15)
    service_jobs(data, 4, OTHER_ORG)
    with statements(data.database) as for_many:
        assert len(release_jobs(**services, limit=20)) == 19
    assert len(for_many) == len(for_one)
