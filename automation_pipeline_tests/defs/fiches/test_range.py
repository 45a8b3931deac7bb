"""The job `sales_range_fetch`: a request fetches the days, and a failed run fails the fetch job."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster import DagsterRunStatus as S

from automation_pipeline import bootstrap
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.fiches import sales_range_fetch, sweep_range_fetches
from automation_pipeline.defs.housekeeping import terminated_runs
from automation_pipeline.fiches.models.fetch_jobs import FetchJob, JobStatus
from automation_pipeline.orchestration.job_registry import (
    REQUEST_TAG,
    TERMINATED,
    close_failed,
    run_request,
)
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline.orchestration.watchdog import LOST_FETCH_JOB
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import mark_taken, offer_waiting
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fiches.ranges import DAYS, HOOK, FetchJobHarness


@pytest.fixture
def ranges(database: Database, monkeypatch: pytest.MonkeyPatch) -> FetchJobHarness:
    """The job uses services of the test; the clock starts at the current time, like Dagster's."""
    ranges = FetchJobHarness(database, FakeClock(datetime.now(UTC)))
    services = bootstrap.Services(Settings(), ranges.clock)
    services.__dict__.update(
        database=database, crm=ranges.crm, sales_list_semaphore=ranges.semaphore
    )
    monkeypatch.setattr(bootstrap, "services", lambda: services)
    return ranges


def launch(ranges: FetchJobHarness, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    """Execute the job of the only waiting request."""
    with ranges.database.transaction() as session:
        [request] = offer_waiting(session, limit=9)
    asked = run_request(request)
    return sales_range_fetch.execute_in_process(
        run_config=dict(asked.run_config or {}),
        tags=dict(asked.tags or {}),
        resources={"services": ServicesResource()},
        instance=instance,
        raise_on_error=False,
    )


def test_a_range_request_fetches_the_days(ranges: FetchJobHarness) -> None:
    ranges.sell(*DAYS)
    job = ranges.job(webhook=HOOK)
    with dg.DagsterInstance.ephemeral() as instance:
        result = launch(ranges, instance)
    assert result.success
    assert (ranges.stored(job).status, ranges.stored(job).total_fiches) == (JobStatus.COMPLETE, 14)
    assert [request.state for request in ranges.requests] == ["taken"]
    [metadata] = [
        event.step_output_data.metadata for event in result.all_events if event.is_successful_output
    ]
    assert (metadata["days"].value, metadata["fetched_days"].value, metadata["status"].value) == (
        7,
        7,
        "complete",
    )
    assert [each.event for each in ranges.deliveries] == ["progress", "complete"]


def test_a_refresh_fetches_final_lists_again(ranges: FetchJobHarness) -> None:
    ranges.prefetch(*DAYS)
    job = ranges.job(refresh=True)
    with dg.DagsterInstance.ephemeral() as instance:
        assert launch(ranges, instance).success
    assert sorted(ranges.crm.requests) == [day.isoformat() for day in DAYS]
    assert ranges.stored(job).status is JobStatus.COMPLETE


def test_an_error_in_the_run_fails_the_fetch_job(
    ranges: FetchJobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("automation_pipeline.fiches.fetch_jobs.fetch_range", broken)
    job = ranges.job(webhook=HOOK)
    with dg.DagsterInstance.ephemeral() as instance:
        assert not launch(ranges, instance).success
    ended = ranges.stored(job)
    assert (ended.status, ended.error, ended.remaining) == (
        JobStatus.FAILED,
        "ZeroDivisionError: a bug",
        DAYS,
    )
    assert [each.event for each in ranges.deliveries] == ["failed"]


def started(
    ranges: FetchJobHarness, instance: dg.DagsterInstance, job: FetchJob, **fields: object
) -> dg.DagsterRun:
    config = {"ops": {"fetch_days": {"config": {"job_id": job.id, "refresh": False}}}}
    given = {"status": S.STARTED, "tags": {REQUEST_TAG: job.id}, **fields}
    run = instance.add_run(
        dg.DagsterRun("sales_range_fetch", run_id=f"r-{job.id}", run_config=config, **given)
    )  # type: ignore[arg-type]
    with ranges.database.transaction() as session:
        mark_taken(session, job.id, run.run_id)
    return run


def test_terminating_the_run_fails_the_fetch_job(ranges: FetchJobHarness) -> None:
    job = ranges.job()
    with dg.DagsterInstance.ephemeral() as instance:
        run = started(ranges, instance, job)
        instance.report_run_canceled(run)
        ended = instance.get_run_by_id(run.run_id)
        assert ended
        [event] = [one.dagster_event for one in instance.all_logs(run.run_id) if one.dagster_event]
        with dg.build_run_status_sensor_context(
            "terminated_runs", event, instance, ended, resources={"services": ServicesResource()}
        ) as context:
            terminated_runs(context)
    assert (ranges.stored(job).status, ranges.stored(job).error) == (JobStatus.FAILED, TERMINATED)


def test_the_fetch_job_of_a_failed_run_is_closed_once(ranges: FetchJobHarness) -> None:
    job = ranges.job(webhook=HOOK)
    ranges.crm.fail_once(DAYS[0].isoformat(), TransientError("no"))
    with dg.DagsterInstance.ephemeral() as instance:
        run = started(ranges, instance, job)
    for _ in range(2):
        close_failed(run, "Its process died", bootstrap.services())
    assert (ranges.stored(job).status, ranges.stored(job).error) == (
        JobStatus.FAILED,
        "Its process died",
    )
    assert len(ranges.deliveries) == 1
    assert [request.state for request in ranges.requests] == ["refused"]


@pytest.mark.parametrize(
    ("status", "minutes", "ended"),
    [(S.STARTED, 60, False), (S.CANCELED, 5, False), (S.CANCELED, 60, True), (S.SUCCESS, 60, True)],
)
def test_an_abandoned_fetch_job_is_swept(
    ranges: FetchJobHarness, status: dg.DagsterRunStatus, minutes: int, ended: bool
) -> None:
    job = ranges.job()
    with dg.DagsterInstance.ephemeral() as instance:
        started(ranges, instance, job, status=status)
        ranges.clock.advance(timedelta(minutes=minutes))
        with dg.build_sensor_context(
            instance=instance, resources={"services": ServicesResource()}
        ) as context:
            result = sweep_range_fetches(context)
    assert isinstance(result, dg.SkipReason)
    assert result.skip_message == (f"Ended {job.id}." if ended else "No fetch job is abandoned.")
    assert ranges.stored(job).error == (LOST_FETCH_JOB if ended else None)


def test_the_step_fails_if_no_day_can_be_read(ranges: FetchJobHarness) -> None:
    job = ranges.job()
    for day in DAYS:
        ranges.crm.fail_always(day.isoformat(), PermanentError("The CRM refuses the day."))
    with dg.DagsterInstance.ephemeral() as instance:
        result = launch(ranges, instance)
    assert ranges.stored(job).status is JobStatus.FAILED
    [failure] = result.get_step_failure_events()
    failed = failure.step_failure_data.user_failure_data
    assert failed
    assert failed.description == ranges.stored(job).error
    assert (failed.metadata["status"].value, failed.metadata["failed_days"].value) == ("failed", 7)
