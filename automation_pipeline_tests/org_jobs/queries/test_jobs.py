"""Queries of jobs, runs, attempts and the queue."""

from datetime import timedelta

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.models.jobs import (
    JobFilter,
    OrgJobsRunState,
    RetryPolicy,
    attempt_failed,
    attempt_succeeded,
)
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.attempts import end_attempts
from automation_pipeline.org_jobs.queries.jobs import (
    get_job,
    get_run,
    list_jobs,
    queues,
    transitions_of,
)
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.org_jobs.bench import CHANGING, ORG, OTHER_ORG, SERVICE, Bench

MINE = OrgScope(ORG)


def listed(
    bench: Bench,
    within: OrgScope = ALL_ORGANISATIONS,
    limit: int = 10,
    offset: int = 0,
    **chosen: object,
) -> list[int]:
    with bench.database.reading() as session:
        found = list_jobs(session, within, chosen=JobFilter(**chosen), limit=limit, offset=offset)
    return [job.id for job in found]


def end(bench: Bench, job_id: int, how: object) -> None:
    with bench.database.transaction() as session:
        end_attempts(session, {bench.run_row(job_id).id: how}, "worker", bench.now)


def test_a_job_is_shown_with_its_runs_and_attempts(org_bench: Bench) -> None:
    job_id = org_bench.running_job(retry=RetryPolicy(max_retries=1), payload={"a": [1]})
    end(org_bench, job_id, attempt_failed("It broke.", "DISK_FULL"))
    with org_bench.database.reading() as session:
        shown = as_document(get_job(session, job_id, MINE))
    assert (shown["id"], shown["orgId"], shown["status"], shown["payload"]) == (
        str(job_id),
        ORG,
        "pending",
        {"a": [1]},
    )
    [run] = shown["runs"]
    assert (run["attemptNo"], run["maxAttempts"], run["nextAttemptAt"]) == (
        2,
        2,
        "2026-05-04T10:00:02.000Z",
    )
    [attempt] = run["attempts"]
    assert (attempt["attemptNo"], attempt["status"], attempt["errorCode"]) == (
        1,
        "failed",
        "DISK_FULL",
    )


def test_rows_of_another_organisation_are_not_found(org_bench: Bench) -> None:
    job_id = org_bench.job(OTHER_ORG)
    run_id = org_bench.run_row(job_id).id
    looks = (
        (get_job, job_id, f"Job {job_id}"),
        (get_run, run_id, f"Job run {run_id}"),
        (lambda *of: transitions_of(*of, 10), job_id, f"Job {job_id}"),
    )
    with org_bench.database.reading() as session:
        for look, id_, words in looks:
            with pytest.raises(NotFoundError, match=f"{words} not found"):
                look(session, id_, MINE)
            look(session, id_, OrgScope(OTHER_ORG))
    assert listed(org_bench, MINE) == []
    assert listed(org_bench, MINE, org_id=OTHER_ORG) == []
    assert listed(org_bench, org_id=OTHER_ORG) == [job_id]


def test_jobs_are_listed_newest_first_and_filtered(org_bench: Bench) -> None:
    schedule, server = org_bench.schedule(), org_bench.server()
    plain = org_bench.job()
    of_schedule = org_bench.job(schedule_id=schedule)
    on_server = org_bench.job(server_instance_id=server)
    at_work = org_bench.running_job(of_type=SERVICE)
    assert listed(org_bench, MINE) == [at_work, on_server, of_schedule, plain]
    assert listed(org_bench, MINE, limit=2, offset=1) == [on_server, of_schedule]
    assert listed(org_bench, schedule_id=schedule) == [of_schedule]
    assert listed(org_bench, server_instance_id=server) == [on_server]
    assert (
        listed(org_bench, status=OrgJobsRunState.RUNNING)
        == listed(org_bench, type=SERVICE.name)
        == [at_work]
    )
    assert listed(org_bench, batch_id=1) == []


def test_the_number_of_queries_per_list_of_jobs_is_constant(org_bench: Bench) -> None:
    for _ in range(3):
        org_bench.running_job()
    with statements(org_bench.database) as of_list:
        listed(org_bench)
    with statements(org_bench.database) as of_one:
        listed(org_bench, limit=1)
    assert len(of_list) == len(of_one)


def test_log_lists_state_changes_in_order(org_bench: Bench) -> None:
    job_id = org_bench.running_job(retry=RetryPolicy(max_retries=1))
    end(org_bench, job_id, attempt_failed("It broke."))
    with org_bench.database.reading() as session:
        moves = transitions_of(session, job_id, MINE, 10)
        rest = transitions_of(session, job_id, MINE, 10, moves[0].id)
    assert [(move.from_state, move.to_state) for move in moves] == [
        ("running", "failed"),
        ("failed", "pending"),
    ]
    assert (moves[0].run_id, moves[0].actor, moves[0].reason) == (
        org_bench.run_row(job_id).id,
        "worker",
        "It broke.",
    )
    assert rest == moves[1:]


def test_queue_counts_waiting_and_running_jobs(org_bench: Bench) -> None:
    org_bench.organisation(max_running=7)
    org_bench.organisation(OTHER_ORG, suspended_at=org_bench.now)
    org_bench.job(of_type=CHANGING)
    org_bench.job(run={"next_attempt_at": org_bench.now})
    org_bench.job(run={"next_attempt_at": org_bench.now + timedelta(minutes=1), "attempt_no": 2})
    org_bench.job(run={"lease_until": database_now(60.0)})
    org_bench.job(run={"lease_until": database_now(-1.0)})
    org_bench.running_job()
    end(org_bench, org_bench.running_job(), attempt_succeeded())
    with org_bench.database.reading() as session:
        mine, other = queues(session, ALL_ORGANISATIONS, org_bench.now)
        assert queues(session, MINE, org_bench.now) == [mine]
    assert (mine.org_id, mine.name, mine.max_running) == (ORG, "jobs:acme", 7)
    assert (mine.waiting, mine.retrying, mine.claimed, mine.running) == (3, 1, 1, 1)
    assert mine.oldest_waiting_at == org_bench.now
    assert (other.waiting, other.running, other.oldest_waiting_at) == (0, 0, None)
    assert other.suspended_at == org_bench.now
