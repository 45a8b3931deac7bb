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
from automation_pipeline_tests.org_jobs.data import CHANGING, ORG, OTHER_ORG, SERVICE, OrgJobsData

ORG_SCOPE = OrgScope(ORG)


def listed(
    data: OrgJobsData,
    within: OrgScope = ALL_ORGANISATIONS,
    limit: int = 10,
    offset: int = 0,
    **chosen: object,
) -> list[int]:
    with data.database.reading() as session:
        found = list_jobs(session, within, chosen=JobFilter(**chosen), limit=limit, offset=offset)
    return [job.id for job in found]


def end(data: OrgJobsData, job_id: int, how: object) -> None:
    with data.database.transaction() as session:
        end_attempts(session, {data.run_row(job_id).id: how}, "worker", data.now)


def test_a_job_is_shown_with_its_runs_and_attempts(data: OrgJobsData) -> None:
    job_id = data.running_job(retry=RetryPolicy(max_retries=1), payload={"a": [1]})
    end(data, job_id, attempt_failed("It broke.", "DISK_FULL"))
    with data.database.reading() as session:
        shown = as_document(get_job(session, job_id, ORG_SCOPE))
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


def test_rows_of_another_organisation_are_not_found(data: OrgJobsData) -> None:
    job_id = data.job(OTHER_ORG)
    run_id = data.run_row(job_id).id
    queries = (
        (get_job, job_id, f"Job {job_id}"),
        (get_run, run_id, f"Job run {run_id}"),
        (lambda *of: transitions_of(*of, 10), job_id, f"Job {job_id}"),
    )
    with data.database.reading() as session:
        for query, id_, words in queries:
            with pytest.raises(NotFoundError, match=f"{words} not found"):
                query(session, id_, ORG_SCOPE)
            query(session, id_, OrgScope(OTHER_ORG))
    assert listed(data, ORG_SCOPE) == []
    assert listed(data, ORG_SCOPE, org_id=OTHER_ORG) == []
    assert listed(data, org_id=OTHER_ORG) == [job_id]


def test_jobs_are_listed_newest_first_and_filtered(data: OrgJobsData) -> None:
    schedule, server = data.schedule(), data.server()
    plain = data.job()
    of_schedule = data.job(schedule_id=schedule)
    on_server = data.job(server_instance_id=server)
    at_work = data.running_job(of_type=SERVICE)
    assert listed(data, ORG_SCOPE) == [at_work, on_server, of_schedule, plain]
    assert listed(data, ORG_SCOPE, limit=2, offset=1) == [on_server, of_schedule]
    assert listed(data, schedule_id=schedule) == [of_schedule]
    assert listed(data, server_instance_id=server) == [on_server]
    assert (
        listed(data, status=OrgJobsRunState.RUNNING) == listed(data, type=SERVICE.name) == [at_work]
    )
    assert listed(data, batch_id=1) == []


def test_the_number_of_queries_per_list_of_jobs_is_constant(data: OrgJobsData) -> None:
    for _ in range(3):
        data.running_job()
    with statements(data.database) as of_list:
        listed(data)
    with statements(data.database) as of_one:
        listed(data, limit=1)
    assert len(of_list) == len(of_one)


def test_log_lists_state_changes_in_order(data: OrgJobsData) -> None:
    job_id = data.running_job(retry=RetryPolicy(max_retries=1))
    end(data, job_id, attempt_failed("It broke."))
    with data.database.reading() as session:
        moves = transitions_of(session, job_id, ORG_SCOPE, 10)
        rest = transitions_of(session, job_id, ORG_SCOPE, 10, moves[0].id)
    assert [(move.from_state, move.to_state) for move in moves] == [
        ("running", "failed"),
        ("failed", "pending"),
    ]
    assert (moves[0].run_id, moves[0].actor, moves[0].reason) == (
        data.run_row(job_id).id,
        "worker",
        "It broke.",
    )
    assert rest == moves[1:]


def test_queue_counts_waiting_and_running_jobs(data: OrgJobsData) -> None:
    data.organisation(max_running=7)
    data.organisation(OTHER_ORG, suspended_at=data.now)
    data.job(of_type=CHANGING)
    data.job(run={"next_attempt_at": data.now})
    data.job(run={"next_attempt_at": data.now + timedelta(minutes=1), "attempt_no": 2})
    data.job(run={"lease_until": database_now(60.0)})
    data.job(run={"lease_until": database_now(-1.0)})
    data.running_job()
    end(data, data.running_job(), attempt_succeeded())
    with data.database.reading() as session:
        mine, other = queues(session, ALL_ORGANISATIONS, data.now)
        assert queues(session, ORG_SCOPE, data.now) == [mine]
    assert (mine.org_id, mine.name, mine.max_running) == (ORG, "jobs:acme", 7)
    assert (mine.waiting, mine.retrying, mine.claimed, mine.running) == (3, 1, 1, 1)
    assert mine.oldest_waiting_at == data.now
    assert (other.waiting, other.running, other.oldest_waiting_at) == (0, 0, None)
    assert other.suspended_at == data.now
