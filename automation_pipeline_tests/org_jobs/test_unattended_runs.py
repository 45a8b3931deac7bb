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
from automation_pipeline.org_jobs.ports import JobRunner
from automation_pipeline.org_jobs.runs import ReapReport, follow_jobs, reap_jobs
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.org_jobs.data import (
    CHANGING,
    OTHER_ORG,
    SERVICE,
    OrgJobsData,
    make_type,
)
from automation_pipeline_tests.org_jobs.runners import LocalWork, RemoteWork

OTHER = make_type("PRICING_RULE_APPLY", SERVICE.performer)


@pytest.fixture
def runner() -> RemoteWork:
    return RemoteWork()


def follow(data: OrgJobsData, runner: JobRunner, other: JobRunner | None = None) -> int:
    runners = {SERVICE.name: runner, OTHER.name: other or runner}
    return follow_jobs(runners=runners, **data.services)


def add_followed_job(data: OrgJobsData, runner: RemoteWork, **of_job: object) -> int:
    of_type = of_job.pop("of_type", SERVICE)
    job_id = data.running_job(of_type=of_type, **{"retry": RetryPolicy(max_retries=0), **of_job})
    run_id = data.run_row(job_id).id
    key, limit = f"{run_id}:1", timedelta(seconds=of_type.limit_seconds)
    runner.started[key] = None
    data.set_run(run_id, lease_until=None, following={"key": key}, deadline_at=data.now + limit)
    return job_id


def cancel(data: OrgJobsData, job_id: int, *, at_once: bool = False) -> None:
    cancel_job(job_id, reason="Not now.", at_once=at_once, **data.context())


@pytest.mark.parametrize(
    "end",
    [
        attempt_succeeded({"runId": "7"}),
        attempt_failed("It went wrong.", "RUN_FAILED"),
        attempt_cancelled("Stopped by a user."),
    ],
)
def test_a_job_ends_with_the_outcome_of_its_remote_work(
    data: OrgJobsData, runner: RemoteWork, end: AttemptEnd
) -> None:
    job_id = add_followed_job(data, runner)
    assert (follow(data, runner), data.run_row(job_id).status) == (0, "running")
    runner.end_all(end)
    assert (follow(data, runner), follow(data, runner)) == (1, 0)
    run = data.run_row(job_id)
    assert (run.status, run.result, run.error, run.error_code) == (
        end.status,
        end.result,
        end.error,
        end.error_code,
    )
    assert (run.following, run.deadline_at) == (None, None)


def test_failed_remote_work_is_retried(data: OrgJobsData, runner: RemoteWork) -> None:
    job_id = add_followed_job(data, runner, retry=RetryPolicy(max_retries=1))
    runner.end_all(attempt_failed("It went wrong."))
    follow(data, runner)
    run = data.run_row(job_id)
    assert (run.status, run.attempt_no, run.following) == ("pending", 2, None)


def test_remote_run_needs_no_heartbeat(data: OrgJobsData, runner: RemoteWork) -> None:
    job_id = add_followed_job(data, runner)
    data.advance_minutes(60)
    reap_jobs(**data.services)
    assert data.run_row(job_id).status == "running"


@pytest.mark.parametrize("at_once", [False, True])
def test_remote_work_is_stopped_before_the_job_is_cancelled(
    data: OrgJobsData, runner: RemoteWork, at_once: bool
) -> None:
    job_id = add_followed_job(data, runner)
    [key] = runner.started
    cancel(data, job_id, at_once=at_once)
    assert follow(data, runner) == 0
    assert runner.stopped == [(key, "user:1", "Not now.")]
    assert data.run_row(job_id).status == "running"
    runner.end_all(attempt_cancelled("It was stopped."))
    assert follow(data, runner) == 1
    assert data.run_row(job_id).status == "cancelled"


@pytest.mark.parametrize("at_once", [False, True])
def test_job_without_remote_work_is_cancelled_at_once(
    data: OrgJobsData, runner: RemoteWork, *, at_once: bool
) -> None:
    runner.stops_at_once = True
    job_id = add_followed_job(data, runner)
    cancel(data, job_id, at_once=at_once)
    assert (follow(data, runner), follow(data, runner)) == (1, 0)
    run = data.run_row(job_id)
    assert (run.status, run.error, run.following, len(runner.stopped)) == (
        "cancelled",
        "Not now.",
        None,
        1,
    )


@pytest.mark.parametrize(("is_cancelled", "failures"), [(True, 0), (False, 1)])
def test_failure_during_a_cancel_does_not_count_for_the_schedule(
    data: OrgJobsData, runner: RemoteWork, *, is_cancelled: bool, failures: int
) -> None:
    schedule = data.schedule()
    job_id = add_followed_job(data, runner, schedule_id=schedule)
    data.set_schedule(schedule, last_run_job_id=job_id)
    if is_cancelled:
        cancel(data, job_id)
    runner.end_all(attempt_failed("It went wrong."))
    follow(data, runner)
    run, row = data.run_row(job_id), data.schedule_row(schedule)
    assert (run.status, run.error, row.last_job_status) == ("failed", "It went wrong.", "failed")
    assert (row.failure_count, row.consecutive_failures) == (failures, failures)


def test_remote_work_past_its_deadline_is_stopped_and_fails(
    data: OrgJobsData, runner: RemoteWork
) -> None:
    job_id = add_followed_job(data, runner)
    [key] = runner.started
    data.advance_minutes(15)
    assert follow(data, runner) == 1
    assert runner.stopped == [(key, "follower", "It takes longer than the limit of its job type.")]
    run = data.run_row(job_id)
    assert (run.status, run.error_code) == ("failed", "TIME_LIMIT")
    assert run.error == "It did not end within 180 s, the limit of its type."


def test_remote_work_that_does_not_stop_is_cancelled_at_the_deadline(
    data: OrgJobsData, runner: RemoteWork
) -> None:
    job_id = add_followed_job(data, runner)
    cancel(data, job_id)
    data.advance_minutes(15)
    assert follow(data, runner) == 1
    assert (data.run_row(job_id).status, len(runner.stopped)) == ("cancelled", 1)


def test_failed_stop_is_repeated_and_raised(data: OrgJobsData, runner: RemoteWork) -> None:
    late, done = (
        add_followed_job(data, runner, of_type=OTHER),
        add_followed_job(data, runner, org_id=OTHER_ORG),
    )
    broken = RemoteWork(runner.started, fault=TransientError("The database is too busy."))
    data.set_run(data.run_row(late).id, deadline_at=data.now)
    runner.started[f"{data.run_row(done).id}:1"] = attempt_succeeded()
    with pytest.raises(TransientError, match="too busy"):
        follow(data, runner, broken)
    assert [data.run_row(job_id).status for job_id in (late, done)] == ["running", "success"]


def test_remote_run_without_a_runner_fails(data: OrgJobsData, runner: RemoteWork) -> None:
    job_id = add_followed_job(data, runner)
    assert follow(data, LocalWork()) == 1
    assert data.run_row(job_id).error_code == "UNSUPPORTED"


def test_remote_runs_of_a_type_are_polled_in_one_call(
    data: OrgJobsData, runner: RemoteWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runs, "FOLLOW_BATCH", 4)
    add_followed_job(data, runner)
    runner.end_all(attempt_succeeded())
    with statements(data.database) as for_one:
        follow(data, runner)
    for _ in range(3):
        add_followed_job(data, runner)
    runner.end_all(attempt_succeeded())
    with statements(data.database) as for_three:
        assert follow(data, runner) == 3
    assert (len(for_three), runner.polls) == (len(for_one), 2)


def test_remote_runs_are_polled_in_pages(
    data: OrgJobsData, runner: RemoteWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runs, "FOLLOW_BATCH", 2)
    jobs = [add_followed_job(data, runner) for _ in range(5)]
    runner.end_all(attempt_succeeded())
    assert (follow(data, runner), runner.polls) == (5, 3)
    assert {data.run_row(job_id).status for job_id in jobs} == {"success"}


NEVER = RetryPolicy(max_retries=0)
DAY = timedelta(hours=24)


def reap(data: OrgJobsData) -> ReapReport:
    return reap_jobs(**data.services)


def release(data: OrgJobsData) -> list[int]:
    return list(release_jobs(database=data.database, clock=data.clock, limit=5))


def add_running_job(data: OrgJobsData, **columns: object) -> int:
    job_id = data.running_job(retry=NEVER, of_type=SERVICE)
    data.set_run(data.run_row(job_id).id, **columns)
    return job_id


def test_a_run_with_heartbeats_stays_claimed(data: OrgJobsData) -> None:
    data.running_job()
    data.job(run={"lease_until": database_now(60.0)})
    data.job()
    assert reap(data) == ReapReport()


def test_a_worker_without_heartbeats_is_lost(data: OrgJobsData) -> None:
    job_id = add_running_job(data, lease_until=database_now(-30.0))
    assert reap(data) == ReapReport(stale=1)
    run = data.run_row(job_id)
    assert (run.status, run.error_code) == ("failed", "STALE")
    assert run.error.startswith("It sent no heartbeat for ")
    assert 90 <= int(run.error.split()[5]) < 3600
    assert reap(data) == ReapReport()
    assert data.meter.drain()["job_run_stale_total", 'type="HTTPS_CALL"'] == 1


def test_a_lost_attempt_is_retried_by_its_policy(data: OrgJobsData) -> None:
    job_id = data.running_job(retry=RetryPolicy(max_retries=1, backoff_ms=2000))
    data.expire_lease(data.run_row(job_id).id)
    reap(data)
    run = data.run_row(job_id)
    assert (run.status, run.attempt_no, run.next_attempt_at) == (
        "pending",
        2,
        data.now + timedelta(seconds=2),
    )
    [event] = data.events("job_run.retry_scheduled")
    assert event.payload["errorCode"] == "STALE"


@pytest.mark.parametrize("lease", [database_now(60.0), database_now(-1.0)])
def test_run_past_its_deadline_fails(data: OrgJobsData, lease: object) -> None:
    columns = {"deadline_at": data.now, "started_at": data.now - timedelta(minutes=3)}
    job_id = add_running_job(data, lease_until=lease, **columns)
    assert reap(data) == ReapReport(too_long=1)
    run = data.run_row(job_id)
    assert (run.error_code, run.error) == (
        "TIME_LIMIT",
        "It did not end within 180 s, the limit of its type.",
    )


def test_silent_run_with_a_cancel_request_is_cancelled(data: OrgJobsData) -> None:
    job_id = add_running_job(
        data,
        lease_until=database_now(-1.0),
        cancel_requested_at=data.now,
        cancel_reason="Not now.",
    )
    assert reap(data) == ReapReport(cancelled=1)
    assert (data.run_row(job_id).status, data.run_row(job_id).error) == (
        "cancelled",
        "Not now.",
    )


def test_unstarted_claim_is_released_without_an_attempt(data: OrgJobsData) -> None:
    job_id = data.job(
        run={"lease_until": database_now(-1.0), "lease_owner": "agent:box", "lease_token": 3}
    )
    assert reap(data) == ReapReport(freed=1)
    run = data.run_row(job_id)
    assert (run.status, run.attempt_no, run.lease_until, run.lease_token) == ("pending", 1, None, 3)
    assert (data.attempts(run.id), data.transitions("job run", run.id)) == ([], [])


def test_run_that_does_not_start_within_a_day_fails(data: OrgJobsData) -> None:
    job_id = data.job()
    data.clock.advance(DAY - timedelta(seconds=1))
    assert reap(data) == ReapReport()
    data.clock.advance(timedelta(seconds=1))
    assert reap(data) == ReapReport(expired=1)
    run = data.run_row(job_id)
    assert (run.status, run.error_code, run.attempt_no) == ("failed", "EXPIRED", 1)
    assert run.error == f"It did not start by {iso(data.now)}: is the agent of its server running?"


@pytest.mark.parametrize("attempt_no", [1, 2])
def test_postponed_run_fails_after_a_day(data: OrgJobsData, attempt_no: int) -> None:
    again = data.now + timedelta(days=2)
    job_id = data.job(of_type=SERVICE, run={"attempt_no": attempt_no, "next_attempt_at": again})
    data.clock.advance(DAY)
    assert reap(data) == ReapReport(expired=1)
    assert data.run_row(job_id).error_code == "EXPIRED"


def test_unclaimed_retry_fails_after_a_day_and_the_next_serial_run_starts(
    data: OrgJobsData,
) -> None:
    job_id = data.running_job(
        line="nightly", retry=RetryPolicy(max_retries=2, backoff_ms=3_600_000)
    )
    data.clock.advance(timedelta(hours=20))
    data.expire_lease(data.run_row(job_id).id)
    assert reap(data) == ReapReport(stale=1)
    again = data.run_row(job_id).next_attempt_at
    assert (again, data.job_row(job_id).expires_at) == (
        data.now + timedelta(hours=1),
        again + DAY,
    )
    data.clock.advance(DAY)
    assert reap(data) == ReapReport()
    next_id = data.job(line="nightly", of_type=SERVICE)
    data.clock.advance(timedelta(hours=1))
    assert (release(data), reap(data)) == ([], ReapReport(expired=1))
    run = data.run_row(job_id)
    assert (run.status, run.error_code, run.attempt_no) == ("failed", "EXPIRED", 2)
    assert release(data) == [data.run_row(next_id).id]


def test_run_with_a_window_may_wait_for_the_next_opening(data: OrgJobsData) -> None:
    window = {"start": "10:00", "end": "11:00", "timezone": "UTC"}
    job_id = data.job(start_window=window)
    data.clock.advance(2 * DAY - timedelta(seconds=1))
    assert reap(data) == ReapReport()
    data.clock.advance(timedelta(seconds=1))
    assert reap(data) == ReapReport(expired=1)
    assert data.run_row(job_id).error_code == "EXPIRED"


CLOSED = [{"suspended_at": database_now()}, {"maintenance_until": datetime(2099, 1, 1, tzinfo=UTC)}]


@pytest.mark.parametrize("closed", CLOSED)
def test_runs_do_not_expire_while_their_organisation_is_closed(
    data: OrgJobsData, closed: dict[str, object]
) -> None:
    job_id, other_id = data.job(), data.job(OTHER_ORG)
    data.organisation(**closed)
    data.clock.advance(3 * DAY)
    assert reap(data) == ReapReport(expired=1)
    assert data.run_row(other_id).error_code == "EXPIRED"
    data.organisation(suspended_at=None, maintenance_until=None)
    data.clock.advance(DAY - timedelta(seconds=1))
    assert (reap(data), data.run_row(job_id).status) == (ReapReport(), "pending")
    data.clock.advance(timedelta(seconds=1))
    assert reap(data) == ReapReport(expired=1)


def test_the_expiry_in_a_closed_organisation_moves_in_steps_of_an_hour(data: OrgJobsData) -> None:
    window = {"start": "10:00", "end": "11:00", "timezone": "UTC"}
    plain, windowed = data.job(), data.job(start_window=window)
    claimed, other = data.job(run={"lease_until": database_now(60.0)}), data.job(OTHER_ORG)
    data.set_job(other, expires_at=data.now + 2 * DAY)
    data.organisation(suspended_at=data.now)
    jobs = (plain, windowed, claimed, other)
    before = [data.job_row(job_id).expires_at for job_id in jobs]
    data.advance_minutes(60)
    data.set_job(other, expires_at=data.now + timedelta(hours=2))
    reap(data)
    unchanged = [data.job_row(job_id).expires_at for job_id in jobs]
    assert unchanged == [*before[:3], data.now + timedelta(hours=2)]
    data.advance_minutes(1)
    reap(data)
    assert [data.job_row(job_id).expires_at for job_id in jobs] == [
        data.now + DAY,
        data.now + 2 * DAY,
        *unchanged[2:],
    ]


def test_claimed_run_does_not_expire(data: OrgJobsData) -> None:
    data.job(run={"lease_until": database_now(60.0)})
    data.running_job()
    data.clock.advance(DAY)
    assert reap(data) == ReapReport()


def test_reaper_ends_one_batch_per_call(data: OrgJobsData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_runs, "REAP_BATCH", 2)
    for org_id in ("acme", OTHER_ORG, "acme"):
        data.expire_lease(data.run_row(data.running_job(org_id, CHANGING)).id)
    assert [reap(data).stale for _ in range(3)] == [2, 1, 0]


def test_the_number_of_queries_does_not_grow_with_the_runs(data: OrgJobsData) -> None:
    add_running_job(data, lease_until=database_now(-1.0))
    with statements(data.database) as for_one:
        reap(data)
    for _ in range(4):
        add_running_job(data, lease_until=database_now(-1.0))
    with statements(data.database) as for_many:
        assert reap(data).stale == 4
    assert len(for_many) == len(for_one)


def test_report_counts_each_end() -> None:
    result = "Ended 1 stale, 2 too long, 0 expired, 0 cancelled; released 3."
    assert str(ReapReport(stale=1, too_long=2, freed=3)) == result
