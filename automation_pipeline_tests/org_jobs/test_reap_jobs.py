"""What nobody speaks for any more is given up: once, with its reason, and nothing else is."""

from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.org_jobs import runs as stage
from automation_pipeline.org_jobs.jobs import release_jobs
from automation_pipeline.org_jobs.models.jobs import RetryPolicy
from automation_pipeline.org_jobs.runs import ReapReport, reap_jobs
from automation_pipeline.storage.clock import database_now
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.org_jobs.bench import CHANGING, OTHER_ORG, SERVICE, Bench

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


def test_whoever_is_heard_of_keeps_what_it_has(org_bench: Bench) -> None:
    org_bench.running_job()
    org_bench.job(run={"lease_until": database_now(60.0)})
    org_bench.job()
    assert reap(org_bench) == ReapReport()


def test_who_was_not_heard_of_for_too_long_is_taken_for_dead(org_bench: Bench) -> None:
    job_id = running(org_bench, lease_until=database_now(-30.0))
    assert reap(org_bench) == ReapReport(stale=1)
    run = org_bench.run_row(job_id)
    assert (run.status, run.error_code) == ("failed", "STALE")
    assert run.error.startswith("Nothing was heard of it for ")
    assert 90 <= int(run.error.split()[6]) < 3600
    assert reap(org_bench) == ReapReport()
    assert org_bench.meter.drain()["job_run_stale_total", 'type="HTTPS_CALL"'] == 1


def test_a_lost_attempt_is_tried_again_by_its_policy(org_bench: Bench) -> None:
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
def test_what_takes_too_long_has_failed_whoever_is_at_it(org_bench: Bench, lease: object) -> None:
    columns = {"deadline_at": org_bench.now, "started_at": org_bench.now - timedelta(minutes=3)}
    job_id = running(org_bench, lease_until=lease, **columns)
    assert reap(org_bench) == ReapReport(too_long=1)
    run = org_bench.run_row(job_id)
    assert (run.error_code, run.error) == (
        "TIME_LIMIT",
        "It was not done after 180 s, the most that its type may take.",
    )


def test_who_was_to_stop_and_is_not_heard_of_has_stopped(org_bench: Bench) -> None:
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


def test_what_was_taken_and_never_begun_is_free_again_at_no_cost(org_bench: Bench) -> None:
    job_id = org_bench.job(
        run={"lease_until": database_now(-1.0), "lease_owner": "agent:box", "lease_token": 3}
    )
    assert reap(org_bench) == ReapReport(freed=1)
    run = org_bench.run_row(job_id)
    assert (run.status, run.attempt_no, run.lease_until, run.lease_token) == ("pending", 1, None, 3)
    assert (org_bench.attempts(run.id), org_bench.moves("job run", run.id)) == ([], [])


def test_what_nobody_begins_within_a_day_has_failed(org_bench: Bench) -> None:
    job_id = org_bench.job()
    org_bench.clock.pass_time(DAY - timedelta(seconds=1))
    assert reap(org_bench) == ReapReport()
    org_bench.clock.pass_time(timedelta(seconds=1))
    assert reap(org_bench) == ReapReport(expired=1)
    run = org_bench.run_row(job_id)
    assert (run.status, run.error_code, run.attempt_no) == ("failed", "EXPIRED", 1)
    assert (
        run.error == f"Nobody began it by {iso(org_bench.now)}: is an agent at work for its server?"
    )


@pytest.mark.parametrize("attempt_no", [1, 2])
def test_what_is_put_off_again_and_again_has_failed_after_a_day(
    org_bench: Bench, attempt_no: int
) -> None:
    again = org_bench.now + timedelta(days=2)
    job_id = org_bench.job(
        of_type=SERVICE, run={"attempt_no": attempt_no, "next_attempt_at": again}
    )
    org_bench.clock.pass_time(DAY)
    assert reap(org_bench) == ReapReport(expired=1)
    assert org_bench.run_row(job_id).error_code == "EXPIRED"


def test_a_retry_that_nobody_takes_fails_a_day_after_its_time_and_its_line_goes_on(
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


def test_under_a_window_there_is_time_for_its_next_opening(org_bench: Bench) -> None:
    window = {"start": "10:00", "end": "11:00", "timezone": "UTC"}
    job_id = org_bench.job(start_window=window)
    org_bench.clock.pass_time(2 * DAY - timedelta(seconds=1))
    assert reap(org_bench) == ReapReport()
    org_bench.clock.pass_time(timedelta(seconds=1))
    assert reap(org_bench) == ReapReport(expired=1)
    assert org_bench.run_row(job_id).error_code == "EXPIRED"


CLOSED = [{"suspended_at": database_now()}, {"maintenance_until": datetime(2099, 1, 1, tzinfo=UTC)}]


@pytest.mark.parametrize("closed", CLOSED)
def test_while_its_organisation_is_closed_no_time_runs_out(
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


def test_what_is_taken_does_not_expire(org_bench: Bench) -> None:
    org_bench.job(run={"lease_until": database_now(60.0)})
    org_bench.running_job()
    org_bench.clock.pass_time(DAY)
    assert reap(org_bench) == ReapReport()


def test_only_so_many_are_given_up_at_once(
    org_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "REAP_BATCH", 2)
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


def test_a_report_says_what_was_done() -> None:
    said = "Gave up 1 stale, 2 too long, 0 expired, 0 cancelled; 3 free again."
    assert str(ReapReport(stale=1, too_long=2, freed=3)) == said
