"""What becomes of jobs whose work was begun elsewhere: looked at together, and stopped when they
are not wanted."""

from datetime import timedelta

import pytest

from automation_pipeline.core.errors import TransientError
from automation_pipeline.org_jobs import runs as stage
from automation_pipeline.org_jobs.jobs import cancel_job
from automation_pipeline.org_jobs.models.jobs import (
    AttemptEnd,
    RetryPolicy,
    attempt_cancelled,
    attempt_failed,
    attempt_succeeded,
)
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS
from automation_pipeline.org_jobs.ports import JobRunner
from automation_pipeline.org_jobs.runs import follow_jobs, reap_jobs
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.org_jobs.bench import OTHER_ORG, SERVICE, Bench, a_type
from automation_pipeline_tests.org_jobs.doers import Elsewhere, Here

OTHER = a_type("PRICING_RULE_APPLY", SERVICE.performer)


@pytest.fixture
def doer() -> Elsewhere:
    return Elsewhere()


def follow(bench: Bench, doer: JobRunner, other: JobRunner | None = None) -> int:
    doers = {SERVICE.name: doer, OTHER.name: other or doer}
    return follow_jobs(doers=doers, database=bench.database, clock=bench.clock, meter=bench.meter)


def followed(bench: Bench, doer: Elsewhere, **of_job: object) -> int:
    of_type = of_job.pop("of_type", SERVICE)
    job_id = bench.running_job(of_type=of_type, **{"retry": RetryPolicy(max_retries=0), **of_job})
    run_id = bench.run_row(job_id).id
    key, limit = f"{run_id}:1", timedelta(seconds=of_type.limit_seconds)
    doer.begun[key] = None
    bench.set_run(run_id, lease_until=None, following={"key": key}, deadline_at=bench.now + limit)
    return job_id


def cancel(bench: Bench, job_id: int, *, at_once: bool = False) -> None:
    wish = {"actor": "user:1", "reason": "Not now.", "at_once": at_once}
    cancel_job(job_id, within=ALL_ORGANISATIONS, database=bench.database, clock=bench.clock, **wish)


@pytest.mark.parametrize(
    "end",
    [
        attempt_succeeded({"runId": "7"}),
        attempt_failed("It went wrong.", "RUN_FAILED"),
        attempt_cancelled("Somebody stopped it."),
    ],
)
def test_a_job_ends_as_what_was_begun_for_it(
    org_bench: Bench, doer: Elsewhere, end: AttemptEnd
) -> None:
    job_id = followed(org_bench, doer)
    assert (follow(org_bench, doer), org_bench.run_row(job_id).status) == (0, "running")
    doer.end_all(end)
    assert (follow(org_bench, doer), follow(org_bench, doer)) == (1, 0)
    run = org_bench.run_row(job_id)
    assert (run.status, run.result, run.error, run.error_code) == (
        end.status,
        end.result,
        end.error,
        end.error_code,
    )
    assert (run.following, run.deadline_at) == (None, None)


def test_what_failed_elsewhere_is_tried_again(org_bench: Bench, doer: Elsewhere) -> None:
    job_id = followed(org_bench, doer, retry=RetryPolicy(max_retries=1))
    doer.end_all(attempt_failed("It went wrong."))
    follow(org_bench, doer)
    run = org_bench.run_row(job_id)
    assert (run.status, run.attempt_no, run.following) == ("pending", 2, None)


def test_nobody_need_speak_for_what_is_followed(org_bench: Bench, doer: Elsewhere) -> None:
    job_id = followed(org_bench, doer)
    org_bench.pass_minutes(60)
    reap_jobs(database=org_bench.database, clock=org_bench.clock, meter=org_bench.meter)
    assert org_bench.run_row(job_id).status == "running"


@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_to_be_cancelled_is_stopped_elsewhere_first(
    org_bench: Bench, doer: Elsewhere, at_once: bool
) -> None:
    job_id = followed(org_bench, doer)
    [key] = doer.begun
    cancel(org_bench, job_id, at_once=at_once)
    assert follow(org_bench, doer) == 0
    assert doer.stopped == [(key, "user:1", "Not now.")]
    assert org_bench.run_row(job_id).status == "running"
    doer.end_all(attempt_cancelled("It was stopped."))
    assert follow(org_bench, doer) == 1
    assert org_bench.run_row(job_id).status == "cancelled"


@pytest.mark.parametrize("at_once", [False, True])
def test_what_has_nothing_to_stop_is_cancelled_here_and_now(
    org_bench: Bench, doer: Elsewhere, *, at_once: bool
) -> None:
    doer.stops_at_once = True
    job_id = followed(org_bench, doer)
    cancel(org_bench, job_id, at_once=at_once)
    assert (follow(org_bench, doer), follow(org_bench, doer)) == (1, 0)
    run = org_bench.run_row(job_id)
    assert (run.status, run.error, run.following, len(doer.stopped)) == (
        "cancelled",
        "Not now.",
        None,
        1,
    )


@pytest.mark.parametrize(("is_cancelled", "failures"), [(True, 0), (False, 1)])
def test_what_fails_while_it_is_to_be_stopped_has_failed_but_is_no_failure_of_its_schedule(
    org_bench: Bench, doer: Elsewhere, *, is_cancelled: bool, failures: int
) -> None:
    schedule = org_bench.schedule()
    job_id = followed(org_bench, doer, schedule_id=schedule)
    org_bench.set_schedule(schedule, last_run_job_id=job_id)
    if is_cancelled:
        cancel(org_bench, job_id)
    doer.end_all(attempt_failed("It went wrong."))
    follow(org_bench, doer)
    run, row = org_bench.run_row(job_id), org_bench.schedule_row(schedule)
    assert (run.status, run.error, row.last_job_status) == ("failed", "It went wrong.", "failed")
    assert (row.failure_count, row.consecutive_failures) == (failures, failures)


def test_what_takes_too_long_is_stopped_and_has_failed(org_bench: Bench, doer: Elsewhere) -> None:
    job_id = followed(org_bench, doer)
    [key] = doer.begun
    org_bench.pass_minutes(15)
    assert follow(org_bench, doer) == 1
    assert doer.stopped == [(key, "follower", "It takes longer than its type of job may.")]
    run = org_bench.run_row(job_id)
    assert (run.status, run.error_code) == ("failed", "TIME_LIMIT")
    assert run.error == "It was not done after 180 s, the most that its type may take."


def test_what_does_not_stop_in_time_is_cancelled_all_the_same(
    org_bench: Bench, doer: Elsewhere
) -> None:
    job_id = followed(org_bench, doer)
    cancel(org_bench, job_id)
    org_bench.pass_minutes(15)
    assert follow(org_bench, doer) == 1
    assert (org_bench.run_row(job_id).status, len(doer.stopped)) == ("cancelled", 1)


def test_what_cannot_be_stopped_now_is_tried_again_and_told(
    org_bench: Bench, doer: Elsewhere
) -> None:
    late, done = (
        followed(org_bench, doer, of_type=OTHER),
        followed(org_bench, doer, org_id=OTHER_ORG),
    )
    broken = Elsewhere(doer.begun, fault=TransientError("The database is too busy."))
    org_bench.set_run(org_bench.run_row(late).id, deadline_at=org_bench.now)
    doer.begun[f"{org_bench.run_row(done).id}:1"] = attempt_succeeded()
    with pytest.raises(TransientError, match="too busy"):
        follow(org_bench, doer, broken)
    assert [org_bench.run_row(job_id).status for job_id in (late, done)] == ["running", "success"]


def test_a_type_that_nobody_does_here_any_more_has_failed(
    org_bench: Bench, doer: Elsewhere
) -> None:
    job_id = followed(org_bench, doer)
    assert follow(org_bench, Here()) == 1
    assert org_bench.run_row(job_id).error_code == "UNSUPPORTED"


def test_all_of_a_type_are_looked_at_together(
    org_bench: Bench, doer: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "FOLLOW_BATCH", 4)
    followed(org_bench, doer)
    doer.end_all(attempt_succeeded())
    with statements(org_bench.database) as of_one:
        follow(org_bench, doer)
    for _ in range(3):
        followed(org_bench, doer)
    doer.end_all(attempt_succeeded())
    with statements(org_bench.database) as of_three:
        assert follow(org_bench, doer) == 3
    assert (len(of_three), doer.looks) == (len(of_one), 2)


def test_many_are_looked_at_page_by_page(
    org_bench: Bench, doer: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "FOLLOW_BATCH", 2)
    jobs = [followed(org_bench, doer) for _ in range(5)]
    doer.end_all(attempt_succeeded())
    assert (follow(org_bench, doer), doer.looks) == (5, 3)
    assert {org_bench.run_row(job_id).status for job_id in jobs} == {"success"}
