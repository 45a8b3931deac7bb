"""Runs whose worker died before it began rest for a while; all others are left as they are."""

from datetime import timedelta

import pytest

from automation_pipeline.org_jobs.jobs import POSTPONED_FOR, postpone_job, release_jobs
from automation_pipeline.org_jobs.models.jobs import request_key
from automation_pipeline.storage.clock import database_now
from automation_pipeline_tests.org_jobs.bench import SERVICE, Bench


def put_off(bench: Bench, job_id: int, before: int = 0) -> bool:
    """By the death of the worker that was asked for last, or of one before it."""
    run = bench.run_row(job_id)
    request = request_key(run.id, run.requests - before)
    return postpone_job(
        run.id, "Its worker died.", request=request, database=bench.database, clock=bench.clock
    )


def release(bench: Bench) -> int:
    return len(release_jobs(database=bench.database, clock=bench.clock, limit=5))


def test_another_worker_is_asked_for_after_a_rest(org_bench: Bench) -> None:
    job_id = org_bench.job(of_type=SERVICE)
    release(org_bench)
    assert put_off(org_bench, job_id)
    run = org_bench.run_row(job_id)
    assert (run.next_attempt_at, run.requested_at, run.error) == (
        org_bench.now + POSTPONED_FOR,
        None,
        "Its worker died.",
    )
    assert (run.status, run.attempt_no, release(org_bench)) == ("pending", 1, 0)
    org_bench.clock.pass_time(POSTPONED_FOR)
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
def test_what_has_begun_or_is_not_ours_to_begin_is_left_as_it_is(
    org_bench: Bench, run: dict[str, object]
) -> None:
    job_id = org_bench.job(
        of_type=SERVICE, run={"requested_at": org_bench.now, "requests": 1} | run
    )
    assert not put_off(org_bench, job_id)
    assert org_bench.run_row(job_id).error is None


def test_what_waits_for_longer_goes_on_waiting(org_bench: Bench) -> None:
    later = org_bench.now + timedelta(hours=1)
    asked = {"requested_at": org_bench.now, "requests": 1}
    job_id = org_bench.job(of_type=SERVICE, run={"next_attempt_at": later, **asked})
    assert not put_off(org_bench, job_id)
    assert org_bench.run_row(job_id).next_attempt_at == later


def test_what_would_rest_beyond_its_window_waits_for_the_next_one(org_bench: Bench) -> None:
    ends = org_bench.now + timedelta(minutes=2)
    window = {"start": f"{org_bench.now:%H:%M}", "end": f"{ends:%H:%M}", "timezone": "UTC"}
    job_id = org_bench.job(of_type=SERVICE, start_window=window)
    release(org_bench)
    assert put_off(org_bench, job_id)
    opens = org_bench.now.replace(second=0, microsecond=0) + timedelta(days=1)
    assert org_bench.run_row(job_id).next_attempt_at == opens


def test_a_worker_that_another_one_was_asked_for_since_puts_nothing_off(org_bench: Bench) -> None:
    job_id = org_bench.job(of_type=SERVICE)
    release(org_bench)
    org_bench.clock.pass_time(POSTPONED_FOR)
    assert release(org_bench) == 1
    assert not put_off(org_bench, job_id, before=1)
    assert put_off(org_bench, job_id)


def test_a_retry_that_the_policy_has_planned_keeps_its_time_and_its_error(org_bench: Bench) -> None:
    soon = org_bench.now + timedelta(seconds=2)
    planned = {
        "requests": 1,
        "attempt_no": 2,
        "next_attempt_at": soon,
        "error": "A fault of this system ended it.",
    }
    job_id = org_bench.job(of_type=SERVICE, run=planned)
    assert not put_off(org_bench, job_id)
    run = org_bench.run_row(job_id)
    assert (run.next_attempt_at, run.error) == (soon, "A fault of this system ended it.")
