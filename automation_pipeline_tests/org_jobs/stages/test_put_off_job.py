"""Runs whose worker died before it began rest for a while; all others are left as they are."""

from datetime import timedelta

import pytest

from automation_pipeline.org_jobs.stages.put_off_job import REST, put_off_job
from automation_pipeline.org_jobs.stages.release_jobs import release_jobs
from automation_pipeline.storage.instants import database_now
from automation_pipeline_tests.org_jobs.bench import SERVICE, Bench


def put_off(bench: Bench, job_id: int) -> bool:
    run_id = bench.run_row(job_id).id
    return put_off_job(run_id, "Its worker died.", database=bench.database, clock=bench.clock)


def release(bench: Bench) -> int:
    return len(release_jobs(database=bench.database, clock=bench.clock, limit=5))


def test_another_worker_is_asked_for_after_a_rest(org_bench: Bench) -> None:
    job_id = org_bench.job(of_type=SERVICE)
    release(org_bench)
    assert put_off(org_bench, job_id)
    run = org_bench.run_row(job_id)
    assert (run.next_attempt_at, run.requested_at, run.error) == (org_bench.now + REST, None, "Its worker died.")
    assert (run.status, run.attempt_no, release(org_bench)) == ("pending", 1, 0)
    org_bench.clock.pass_time(REST)
    assert release(org_bench) == 1


@pytest.mark.parametrize(
    "run",
    [
        {"status": "running", "started_at": database_now(), "lease_until": database_now(60.0)},
        {"status": "success", "finished_at": database_now()},
        {"performer": "agent"},
        {"lease_until": database_now(60.0)},
    ],
)
def test_what_has_begun_or_is_not_ours_to_begin_is_left_as_it_is(org_bench: Bench, run: dict[str, object]) -> None:
    job_id = org_bench.job(of_type=SERVICE, run=run)
    assert not put_off(org_bench, job_id)
    assert org_bench.run_row(job_id).error is None


def test_what_waits_for_longer_goes_on_waiting(org_bench: Bench) -> None:
    later = org_bench.now + timedelta(hours=1)
    job_id = org_bench.job(of_type=SERVICE, run={"next_attempt_at": later})
    assert not put_off(org_bench, job_id)
    assert org_bench.run_row(job_id).next_attempt_at == later
