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
from automation_pipeline_tests.org_jobs.agent import an_agent
from automation_pipeline_tests.org_jobs.bench import CHANGING, ORG, OTHER_ORG, SERVICE, Bench
from automation_pipeline_tests.org_jobs.runners import LocalWork
from automation_pipeline_tests.processes import at_once

LATER = timedelta(minutes=5)


def release(bench: Bench, limit: int = 20) -> list[int]:
    """Release jobs; return their ids."""
    released = release_jobs(database=bench.database, clock=bench.clock, limit=limit)
    return sorted(bench.run_by_id(run_id).job_id for run_id in released)


def request_states(bench: Bench) -> list[str]:
    return list(bench.rows(select(RunRequestRow.state).order_by(RunRequestRow.id)))


def service_jobs(bench: Bench, count: int, org_id: str = ORG, **of_job: object) -> list[int]:
    return [bench.job(org_id, SERVICE, **of_job) for _ in range(count)]


def test_worker_is_requested_once_with_its_tags(org_bench: Bench) -> None:
    schedule = org_bench.schedule(
        job_type=SERVICE.name, overlap_policy=OverlapPolicy.SKIP, server_instance_id=None
    )
    fire_id, server_id = org_bench.fire(schedule), org_bench.server()
    job_id = org_bench.job(
        of_type=SERVICE, schedule_id=schedule, fire_id=fire_id, server_instance_id=server_id
    )
    assert (release(org_bench), release(org_bench)) == ([job_id], [])
    run = org_bench.run_row(job_id)
    [tags] = org_bench.rows(select(RunRequestRow.tags))
    assert org_bench.requests() == [(f"org-job-{run.id}-1", {"job_run_id": run.id})]
    assert (run.requested_at, run.requests, run.status) == (org_bench.now, 1, "pending")
    assert tags == {
        "org_jobs/org_id": ORG,
        "org_jobs/job_id": str(job_id),
        "org_jobs/job_run_id": str(run.id),
        "org_jobs/schedule_id": schedule,
        "org_jobs/server_instance_id": str(server_id),
        "org_jobs/trigger": "CRON",
    }


def test_no_worker_is_requested_for_jobs_of_agents(org_bench: Bench) -> None:
    org_bench.job(of_type=CHANGING)
    assert release(org_bench) == []


def test_missing_worker_is_requested_again_under_another_key(org_bench: Bench) -> None:
    [job_id] = service_jobs(org_bench, 1)
    release(org_bench)
    org_bench.clock.pass_time(LATER - timedelta(seconds=1))
    assert release(org_bench) == []
    org_bench.clock.pass_time(timedelta(seconds=1))
    assert release(org_bench) == [job_id]
    run_id = org_bench.run_row(job_id).id
    assert [key for key, _ in org_bench.requests()] == [
        f"org-job-{run_id}-1",
        f"org-job-{run_id}-2",
    ]
    assert request_states(org_bench) == ["refused", "waiting"]


@pytest.mark.parametrize("is_taken", [False, True])
def test_queued_worker_is_not_requested_again_for_an_hour(org_bench: Bench, is_taken: bool) -> None:
    [job_id, other] = service_jobs(org_bench, 2)
    assert release(org_bench, 1) == [job_id]
    with org_bench.database.transaction() as session:
        [request] = offer_waiting(session, limit=9)
        if is_taken:
            mark_taken(session, request.key, "dagster-run-1")
    org_bench.clock.pass_time(timedelta(minutes=59))
    assert release(org_bench, 1) == []
    assert release(org_bench, 2) == [other]
    org_bench.clock.pass_time(timedelta(minutes=1))
    assert release(org_bench, 2) == [job_id]
    assert request_states(org_bench) == ["taken" if is_taken else "refused", "waiting", "waiting"]


def test_refused_worker_is_requested_again(org_bench: Bench) -> None:
    [job_id] = service_jobs(org_bench, 1)
    release(org_bench)
    with org_bench.database.transaction() as session:
        [request] = offer_waiting(session, limit=9)
        mark_refused(session, request.key, "Dagster could not launch it.")
    org_bench.clock.pass_time(LATER)
    assert release(org_bench) == [job_id]


def test_organisations_are_served_in_turn(org_bench: Bench) -> None:
    many, few = service_jobs(org_bench, 6), service_jobs(org_bench, 2, OTHER_ORG)
    assert release(org_bench, 4) == sorted([*many[:2], *few])
    assert release(org_bench, 5) == many[2:3]


def test_organisation_with_fewer_running_jobs_comes_first(org_bench: Bench) -> None:
    for _ in range(2):
        org_bench.running_job(of_type=SERVICE)
    service_jobs(org_bench, 2)
    [late] = service_jobs(org_bench, 1, OTHER_ORG)
    assert release(org_bench, 3) == [late]


def test_most_urgent_runs_of_an_organisation_come_first(org_bench: Bench) -> None:
    jobs = [service_jobs(org_bench, 1, priority=priority)[0] for priority in (5, 9, 1, 5)]
    assert release(org_bench, 1) == [jobs[2]]
    assert release(org_bench, 3) == sorted([jobs[0], jobs[3]])


def test_limits_of_running_jobs_are_kept(org_bench: Bench) -> None:
    org_bench.organisation(max_running=2)
    org_bench.running_job(of_type=CHANGING)
    jobs, others = service_jobs(org_bench, 3), service_jobs(org_bench, 3, OTHER_ORG)
    assert release(org_bench, 3) == sorted([jobs[0], *others[:2]])
    assert release(org_bench, 3) == []
    assert release(org_bench, 0) == []
    assert release(org_bench, 20) == others[2:]


def test_remote_run_counts_only_for_its_organisation(
    org_bench: Bench,
) -> None:
    org_bench.organisation(max_running=2)
    for number in range(2):
        followed = org_bench.running_job(of_type=SERVICE)
        org_bench.set_run(
            org_bench.run_row(followed).id, lease_until=None, following={"runId": str(number)}
        )
    service_jobs(org_bench, 1)
    others = service_jobs(org_bench, 2, OTHER_ORG)
    assert release(org_bench, 2) == others


def test_idle_organisation_comes_before_a_busy_one(org_bench: Bench) -> None:
    many = service_jobs(org_bench, 6, priority=1)
    assert release(org_bench, 3) == many[:3]
    [late] = service_jobs(org_bench, 1, OTHER_ORG, priority=9)
    assert release(org_bench, 3) == []
    org_bench.set_run(org_bench.run_row(many[0]).id, status="cancelled", finished_at=org_bench.now)
    assert release(org_bench, 3) == [late]


@pytest.mark.parametrize("releases_before_the_claim", [False, True])
def test_urgent_service_job_starts_despite_busy_agents(
    org_bench: Bench, releases_before_the_claim: bool
) -> None:
    """The agent claims again at once, before or after the queue is released."""
    org_bench.organisation(max_running=1)
    agent, runner = an_agent(org_bench), LocalWork()
    for _ in range(4):
        agent.wanted(priority=9)
    held = agent.claim()
    [urgent] = service_jobs(org_bench, 1, priority=1)
    rounds = 0
    while org_bench.run_row(urgent).status == "pending" and rounds < 4:
        for job in held:
            agent.result(job, "success")
        released = release(org_bench) if releases_before_the_claim else []
        held = agent.claim()
        if released or release(org_bench):
            work(org_bench, urgent, runner)
        rounds += 1
    assert (org_bench.run_row(urgent).status, len(runner.asked), held, rounds) == (
        "success",
        1,
        [],
        1,
    )
    assert len(agent.claim()) == 1


def work(bench: Bench, job_id: int, runner: LocalWork) -> None:
    waiting.run(
        work_job(
            bench.run_row(job_id).id,
            runners={SERVICE.name: runner},
            lease_seconds=3600.0,
            database=bench.database,
            clock=bench.clock,
            meter=bench.meter,
            owner="worker",
        )
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
    org_bench: Bench, columns: dict[str, object]
) -> None:
    times = {"later": org_bench.now + LATER, "now": org_bench.now}
    values = {
        name: times.get(value, value) if isinstance(value, str) else value
        for name, value in columns.items()
    }
    service_jobs(org_bench, 1, run=values)
    assert release(org_bench) == []


@pytest.mark.parametrize("closed", ["suspended_at", "maintenance_until"])
def test_no_worker_is_requested_for_a_closed_organisation(org_bench: Bench, closed: str) -> None:
    service_jobs(org_bench, 1)
    [job_id] = service_jobs(org_bench, 1, OTHER_ORG)
    org_bench.organisation(**{closed: org_bench.now + LATER})
    assert release(org_bench) == [job_id]


def test_worker_is_requested_for_the_first_of_serial_runs(org_bench: Bench) -> None:
    first, second = service_jobs(org_bench, 2, line="a")
    assert release(org_bench) == [first]
    org_bench.set_run(org_bench.run_row(first).id, status="cancelled", finished_at=org_bench.now)
    assert release(org_bench) == [second]


def test_concurrent_releases_request_each_run_once_within_the_limit(org_bench: Bench) -> None:
    jobs = service_jobs(org_bench, 6)
    url = org_bench.database.url.render_as_string(hide_password=False)
    released = at_once(processes.release, *[(url, org_bench.now, 4)] * 4)
    assert (
        len(released[0] + released[1] + released[2] + released[3]) == len(org_bench.requests()) == 4
    )
    assert [org_bench.run_row(job_id).requests for job_id in jobs] == [1, 1, 1, 1, 0, 0]


def test_the_number_of_queries_does_not_grow_with_the_runs(org_bench: Bench) -> None:
    ground = {"database": org_bench.database, "clock": org_bench.clock}
    service_jobs(org_bench, 1)
    with statements(org_bench.database) as of_one:
        assert len(release_jobs(**ground, limit=20)) == 1
    service_jobs(org_bench, 15)
    service_jobs(org_bench, 4, OTHER_ORG)
    with statements(org_bench.database) as of_many:
        assert len(release_jobs(**ground, limit=20)) == 19
    assert len(of_many) == len(of_one)
