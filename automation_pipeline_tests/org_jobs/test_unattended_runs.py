"""Runs without a worker: followed runs, and abandoned ones."""

from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import TransientError
from automation_pipeline.org_jobs import runs as job_runs
from automation_pipeline.org_jobs.jobs import cancel_job, release_jobs
from automation_pipeline.org_jobs.models.jobs import (
    AttemptEnd,
    RetryPolicy,
    attempt_cancelled,
    attempt_failed,
    attempt_succeeded,
)
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS
from automation_pipeline.org_jobs.ports import JobRunner
from automation_pipeline.org_jobs.runs import ReapReport, follow_jobs, reap_jobs
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.org_jobs.bench import CHANGING, OTHER_ORG, SERVICE, Bench, a_type
from automation_pipeline_tests.org_jobs.runners import LocalWork, RemoteWork

OTHER = a_type("PRICING_RULE_APPLY", SERVICE.performer)


@pytest.fixture
def runner() -> RemoteWork:
    return RemoteWork()


def follow(bench: Bench, runner: JobRunner, other: JobRunner | None = None) -> int:
    runners = {SERVICE.name: runner, OTHER.name: other or runner}
    return follow_jobs(
        runners=runners, database=bench.database, clock=bench.clock, meter=bench.meter
    )


def followed(bench: Bench, runner: RemoteWork, **of_job: object) -> int:
    of_type = of_job.pop("of_type", SERVICE)
    job_id = bench.running_job(of_type=of_type, **{"retry": RetryPolicy(max_retries=0), **of_job})
    run_id = bench.run_row(job_id).id
    key, limit = f"{run_id}:1", timedelta(seconds=of_type.limit_seconds)
    runner.started[key] = None
    bench.set_run(run_id, lease_until=None, following={"key": key}, deadline_at=bench.now + limit)
    return job_id


def cancel(bench: Bench, job_id: int, *, at_once: bool = False) -> None:
    request = {"actor": "user:1", "reason": "Not now.", "at_once": at_once}
    cancel_job(
        job_id, within=ALL_ORGANISATIONS, database=bench.database, clock=bench.clock, **request
    )


@pytest.mark.parametrize(
    "end",
    [
        attempt_succeeded({"runId": "7"}),
        attempt_failed("It went wrong.", "RUN_FAILED"),
        attempt_cancelled("Stopped by a user."),
    ],
)
def test_a_job_ends_with_the_outcome_of_its_remote_work(
    org_bench: Bench, runner: RemoteWork, end: AttemptEnd
) -> None:
    job_id = followed(org_bench, runner)
    assert (follow(org_bench, runner), org_bench.run_row(job_id).status) == (0, "running")
    runner.end_all(end)
    assert (follow(org_bench, runner), follow(org_bench, runner)) == (1, 0)
    run = org_bench.run_row(job_id)
    assert (run.status, run.result, run.error, run.error_code) == (
        end.status,
        end.result,
        end.error,
        end.error_code,
    )
    assert (run.following, run.deadline_at) == (None, None)


def test_failed_remote_work_is_retried(org_bench: Bench, runner: RemoteWork) -> None:
    job_id = followed(org_bench, runner, retry=RetryPolicy(max_retries=1))
    runner.end_all(attempt_failed("It went wrong."))
    follow(org_bench, runner)
    run = org_bench.run_row(job_id)
    assert (run.status, run.attempt_no, run.following) == ("pending", 2, None)


def test_remote_run_needs_no_heartbeat(org_bench: Bench, runner: RemoteWork) -> None:
    job_id = followed(org_bench, runner)
    org_bench.pass_minutes(60)
    reap_jobs(database=org_bench.database, clock=org_bench.clock, meter=org_bench.meter)
    assert org_bench.run_row(job_id).status == "running"


@pytest.mark.parametrize("at_once", [False, True])
def test_remote_work_is_stopped_before_the_job_is_cancelled(
    org_bench: Bench, runner: RemoteWork, at_once: bool
) -> None:
    job_id = followed(org_bench, runner)
    [key] = runner.started
    cancel(org_bench, job_id, at_once=at_once)
    assert follow(org_bench, runner) == 0
    assert runner.stopped == [(key, "user:1", "Not now.")]
    assert org_bench.run_row(job_id).status == "running"
    runner.end_all(attempt_cancelled("It was stopped."))
    assert follow(org_bench, runner) == 1
    assert org_bench.run_row(job_id).status == "cancelled"


@pytest.mark.parametrize("at_once", [False, True])
def test_job_without_remote_work_is_cancelled_at_once(
    org_bench: Bench, runner: RemoteWork, *, at_once: bool
) -> None:
    runner.stops_at_once = True
    job_id = followed(org_bench, runner)
    cancel(org_bench, job_id, at_once=at_once)
    assert (follow(org_bench, runner), follow(org_bench, runner)) == (1, 0)
    run = org_bench.run_row(job_id)
    assert (run.status, run.error, run.following, len(runner.stopped)) == (
        "cancelled",
        "Not now.",
        None,
        1,
    )


@pytest.mark.parametrize(("is_cancelled", "failures"), [(True, 0), (False, 1)])
def test_failure_during_a_cancel_does_not_count_for_the_schedule(
    org_bench: Bench, runner: RemoteWork, *, is_cancelled: bool, failures: int
) -> None:
    schedule = org_bench.schedule()
    job_id = followed(org_bench, runner, schedule_id=schedule)
    org_bench.set_schedule(schedule, last_run_job_id=job_id)
    if is_cancelled:
        cancel(org_bench, job_id)
    runner.end_all(attempt_failed("It went wrong."))
    follow(org_bench, runner)
    run, row = org_bench.run_row(job_id), org_bench.schedule_row(schedule)
    assert (run.status, run.error, row.last_job_status) == ("failed", "It went wrong.", "failed")
    assert (row.failure_count, row.consecutive_failures) == (failures, failures)


def test_remote_work_past_its_deadline_is_stopped_and_fails(
    org_bench: Bench, runner: RemoteWork
) -> None:
    job_id = followed(org_bench, runner)
    [key] = runner.started
    org_bench.pass_minutes(15)
    assert follow(org_bench, runner) == 1
    assert runner.stopped == [(key, "follower", "It takes longer than the limit of its job type.")]
    run = org_bench.run_row(job_id)
    assert (run.status, run.error_code) == ("failed", "TIME_LIMIT")
    assert run.error == "It did not end within 180 s, the limit of its type."


def test_remote_work_that_does_not_stop_is_cancelled_at_the_deadline(
    org_bench: Bench, runner: RemoteWork
) -> None:
    job_id = followed(org_bench, runner)
    cancel(org_bench, job_id)
    org_bench.pass_minutes(15)
    assert follow(org_bench, runner) == 1
    assert (org_bench.run_row(job_id).status, len(runner.stopped)) == ("cancelled", 1)


def test_failed_stop_is_repeated_and_raised(org_bench: Bench, runner: RemoteWork) -> None:
    late, done = (
        followed(org_bench, runner, of_type=OTHER),
        followed(org_bench, runner, org_id=OTHER_ORG),
    )
    broken = RemoteWork(runner.started, fault=TransientError("The database is too busy."))
    org_bench.set_run(org_bench.run_row(late).id, deadline_at=org_bench.now)
    runner.started[f"{org_bench.run_row(done).id}:1"] = attempt_succeeded()
    with pytest.raises(TransientError, match="too busy"):
        follow(org_bench, runner, broken)
    assert [org_bench.run_row(job_id).status for job_id in (late, done)] == ["running", "success"]


def test_remote_run_without_a_runner_fails(org_bench: Bench, runner: RemoteWork) -> None:
    job_id = followed(org_bench, runner)
    assert follow(org_bench, LocalWork()) == 1
    assert org_bench.run_row(job_id).error_code == "UNSUPPORTED"


def test_remote_runs_of_a_type_are_polled_in_one_call(
    org_bench: Bench, runner: RemoteWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runs, "FOLLOW_BATCH", 4)
    followed(org_bench, runner)
    runner.end_all(attempt_succeeded())
    with statements(org_bench.database) as of_one:
        follow(org_bench, runner)
    for _ in range(3):
        followed(org_bench, runner)
    runner.end_all(attempt_succeeded())
    with statements(org_bench.database) as of_three:
        assert follow(org_bench, runner) == 3
    assert (len(of_three), runner.looks) == (len(of_one), 2)


def test_remote_runs_are_polled_in_pages(
    org_bench: Bench, runner: RemoteWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runs, "FOLLOW_BATCH", 2)
    jobs = [followed(org_bench, runner) for _ in range(5)]
    runner.end_all(attempt_succeeded())
    assert (follow(org_bench, runner), runner.looks) == (5, 3)
    assert {org_bench.run_row(job_id).status for job_id in jobs} == {"success"}


NEVER = RetryPolicy(max_retries=0)
DAY = timedelta(hours=24)


def reap(bench: Bench) -> ReapReport:
    return reap_jobs(database=bench.database, clock=bench.clock, meter=bench.meter)


def release(bench: Bench) -> list[int]:
    return list(release_jobs(database=bench.database, clock=bench.clock, limit=5))


def running(bench: Bench, **columns: object) -> int:
    job_id = bench.running_job(retry=NEVER, of_type=SERVICE)
    bench.set_run(bench.run_row(job_id).id, **columns)
    return job_id


def test_a_run_with_heartbeats_stays_claimed(org_bench: Bench) -> None:
    org_bench.running_job()
    org_bench.job(run={"lease_until": database_now(60.0)})
    org_bench.job()
    assert reap(org_bench) == ReapReport()


def test_a_worker_without_heartbeats_is_lost(org_bench: Bench) -> None:
    job_id = running(org_bench, lease_until=database_now(-30.0))
    assert reap(org_bench) == ReapReport(stale=1)
    run = org_bench.run_row(job_id)
    assert (run.status, run.error_code) == ("failed", "STALE")
    assert run.error.startswith("It sent no heartbeat for ")
    assert 90 <= int(run.error.split()[5]) < 3600
    assert reap(org_bench) == ReapReport()
    assert org_bench.meter.drain()["job_run_stale_total", 'type="HTTPS_CALL"'] == 1


def test_a_lost_attempt_is_retried_by_its_policy(org_bench: Bench) -> None:
    job_id = org_bench.running_job(retry=RetryPolicy(max_retries=1, backoff_ms=2000))
    org_bench.expire_hold(org_bench.run_row(job_id).id)
    reap(org_bench)
    run = org_bench.run_row(job_id)
    assert (run.status, run.attempt_no, run.next_attempt_at) == (
        "pending",
        2,
        org_bench.now + timedelta(seconds=2),
    )
    [event] = org_bench.events("job_run.retry_scheduled")
    assert event.payload["errorCode"] == "STALE"


@pytest.mark.parametrize("lease", [database_now(60.0), database_now(-1.0)])
def test_run_past_its_deadline_fails(org_bench: Bench, lease: object) -> None:
    columns = {"deadline_at": org_bench.now, "started_at": org_bench.now - timedelta(minutes=3)}
    job_id = running(org_bench, lease_until=lease, **columns)
    assert reap(org_bench) == ReapReport(too_long=1)
    run = org_bench.run_row(job_id)
    assert (run.error_code, run.error) == (
        "TIME_LIMIT",
        "It did not end within 180 s, the limit of its type.",
    )


def test_silent_run_with_a_cancel_request_is_cancelled(org_bench: Bench) -> None:
    job_id = running(
        org_bench,
        lease_until=database_now(-1.0),
        cancel_requested_at=org_bench.now,
        cancel_reason="Not now.",
    )
    assert reap(org_bench) == ReapReport(cancelled=1)
    assert (org_bench.run_row(job_id).status, org_bench.run_row(job_id).error) == (
        "cancelled",
        "Not now.",
    )


def test_unstarted_claim_is_released_without_an_attempt(org_bench: Bench) -> None:
    job_id = org_bench.job(
        run={"lease_until": database_now(-1.0), "lease_owner": "agent:box", "lease_token": 3}
    )
    assert reap(org_bench) == ReapReport(freed=1)
    run = org_bench.run_row(job_id)
    assert (run.status, run.attempt_no, run.lease_until, run.lease_token) == ("pending", 1, None, 3)
    assert (org_bench.attempts(run.id), org_bench.moves("job run", run.id)) == ([], [])


def test_run_that_does_not_start_within_a_day_fails(org_bench: Bench) -> None:
    job_id = org_bench.job()
    org_bench.clock.pass_time(DAY - timedelta(seconds=1))
    assert reap(org_bench) == ReapReport()
    org_bench.clock.pass_time(timedelta(seconds=1))
    assert reap(org_bench) == ReapReport(expired=1)
    run = org_bench.run_row(job_id)
    assert (run.status, run.error_code, run.attempt_no) == ("failed", "EXPIRED", 1)
    assert (
        run.error
        == f"It did not start by {iso(org_bench.now)}: is the agent of its server running?"
    )


@pytest.mark.parametrize("attempt_no", [1, 2])
def test_postponed_run_fails_after_a_day(org_bench: Bench, attempt_no: int) -> None:
    again = org_bench.now + timedelta(days=2)
    job_id = org_bench.job(
        of_type=SERVICE, run={"attempt_no": attempt_no, "next_attempt_at": again}
    )
    org_bench.clock.pass_time(DAY)
    assert reap(org_bench) == ReapReport(expired=1)
    assert org_bench.run_row(job_id).error_code == "EXPIRED"


def test_unclaimed_retry_fails_after_a_day_and_the_next_serial_run_starts(
    org_bench: Bench,
) -> None:
    job_id = org_bench.running_job(
        line="nightly", retry=RetryPolicy(max_retries=2, backoff_ms=3_600_000)
    )
    org_bench.clock.pass_time(timedelta(hours=20))
    org_bench.expire_hold(org_bench.run_row(job_id).id)
    assert reap(org_bench) == ReapReport(stale=1)
    again = org_bench.run_row(job_id).next_attempt_at
    assert (again, org_bench.job_row(job_id).expires_at) == (
        org_bench.now + timedelta(hours=1),
        again + DAY,
    )
    org_bench.clock.pass_time(DAY)
    assert reap(org_bench) == ReapReport()
    next_id = org_bench.job(line="nightly", of_type=SERVICE)
    org_bench.clock.pass_time(timedelta(hours=1))
    assert (release(org_bench), reap(org_bench)) == ([], ReapReport(expired=1))
    run = org_bench.run_row(job_id)
    assert (run.status, run.error_code, run.attempt_no) == ("failed", "EXPIRED", 2)
    assert release(org_bench) == [org_bench.run_row(next_id).id]


def test_run_with_a_window_may_wait_for_the_next_opening(org_bench: Bench) -> None:
    window = {"start": "10:00", "end": "11:00", "timezone": "UTC"}
    job_id = org_bench.job(start_window=window)
    org_bench.clock.pass_time(2 * DAY - timedelta(seconds=1))
    assert reap(org_bench) == ReapReport()
    org_bench.clock.pass_time(timedelta(seconds=1))
    assert reap(org_bench) == ReapReport(expired=1)
    assert org_bench.run_row(job_id).error_code == "EXPIRED"


CLOSED = [{"suspended_at": database_now()}, {"maintenance_until": datetime(2099, 1, 1, tzinfo=UTC)}]


@pytest.mark.parametrize("closed", CLOSED)
def test_runs_do_not_expire_while_their_organisation_is_closed(
    org_bench: Bench, closed: dict[str, object]
) -> None:
    job_id, other_id = org_bench.job(), org_bench.job(OTHER_ORG)
    org_bench.organisation(**closed)
    org_bench.clock.pass_time(3 * DAY)
    assert reap(org_bench) == ReapReport(expired=1)
    assert org_bench.run_row(other_id).error_code == "EXPIRED"
    org_bench.organisation(suspended_at=None, maintenance_until=None)
    org_bench.clock.pass_time(DAY - timedelta(seconds=1))
    assert (reap(org_bench), org_bench.run_row(job_id).status) == (ReapReport(), "pending")
    org_bench.clock.pass_time(timedelta(seconds=1))
    assert reap(org_bench) == ReapReport(expired=1)


def test_claimed_run_does_not_expire(org_bench: Bench) -> None:
    org_bench.job(run={"lease_until": database_now(60.0)})
    org_bench.running_job()
    org_bench.clock.pass_time(DAY)
    assert reap(org_bench) == ReapReport()


def test_reaper_ends_one_batch_per_call(org_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_runs, "REAP_BATCH", 2)
    for org_id in ("acme", OTHER_ORG, "acme"):
        org_bench.expire_hold(org_bench.run_row(org_bench.running_job(org_id, CHANGING)).id)
    assert [reap(org_bench).stale for _ in range(3)] == [2, 1, 0]


def test_the_number_of_queries_does_not_grow_with_the_runs(org_bench: Bench) -> None:
    running(org_bench, lease_until=database_now(-1.0))
    with statements(org_bench.database) as of_one:
        reap(org_bench)
    for _ in range(4):
        running(org_bench, lease_until=database_now(-1.0))
    with statements(org_bench.database) as of_many:
        assert reap(org_bench).stale == 4
    assert len(of_many) == len(of_one)


def test_report_counts_each_end() -> None:
    result = "Gave up 1 stale, 2 too long, 0 expired, 0 cancelled; 3 free again."
    assert str(ReapReport(stale=1, too_long=2, freed=3)) == result
