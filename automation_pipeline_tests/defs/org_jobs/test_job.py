"""The job `org_job`: launched by a request or from the launchpad, and cancelled by termination."""

import dagster as dg
import pytest
from sqlalchemy import select

from automation_pipeline.defs.housekeeping import run_failures, terminated_runs
from automation_pipeline.defs.org_jobs import org_job, org_job_queue
from automation_pipeline.orchestration.job_registry import LAUNCH_TAG, REQUEST_TAG, TERMINATED
from automation_pipeline.orchestration.org_jobs import job_run_id_of
from automation_pipeline.orchestration.watchdog import MOST_LAUNCHES_OF_A_JOB
from automation_pipeline.org_jobs.models.jobs import RetryPolicy, attempt_failed, request_key
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.defs.org_jobs.org_services import (
    OP,
    RESOURCES,
    FakeRunner,
    data_with_services,
    execute,
    launch,
    metadata_of,
    refusal,
)
from automation_pipeline_tests.org_jobs.data import ORG, SERVICE, OrgJobsData


@pytest.fixture
def runner() -> FakeRunner:
    return FakeRunner()


@pytest.fixture
def data(database: Database, monkeypatch: pytest.MonkeyPatch, runner: FakeRunner) -> OrgJobsData:
    return data_with_services(database, monkeypatch, runner)


def request_worker(data: OrgJobsData, job_id: int) -> int:
    """Request a worker for the job. Returns the run id."""
    with dg.build_sensor_context(resources=RESOURCES) as context:
        org_job_queue(context)
    return data.run_row(job_id).id


def request_states(data: OrgJobsData) -> list[str]:
    return list(data.rows(select(RunRequestRow.state).order_by(RunRequestRow.id)))


def test_a_run_request_is_executed_as_an_attempt(data: OrgJobsData, runner: FakeRunner) -> None:
    job_id = data.job(of_type=SERVICE, payload={"url": "https://example.com"})
    run_id = request_worker(data, job_id)
    result = launch(data, org_job)
    assert result.success
    run = data.run_row(job_id)
    assert (run.status, run.result, data.job_row(job_id).status) == (
        "success",
        {"seen": True},
        "success",
    )
    assert [(one.run_id, one.attempt_no, one.payload) for one in runner.asked] == [
        (run_id, 1, {"url": "https://example.com"})
    ]
    assert request_states(data) == ["taken"]
    assert metadata_of(result) == {
        "job": str(job_id),
        "type": SERVICE.name,
        "organisation": ORG,
        "status": "success",
        "attempt": "1 of 3",
    }


def test_the_launchpad_requires_only_the_run_id(data: OrgJobsData) -> None:
    job_id = data.job(of_type=SERVICE)
    result = execute(org_job, {"job_run_id": data.run_row(job_id).id})
    assert (result.success, data.run_row(job_id).status) == (True, "success")


def test_a_failed_job_succeeds_as_a_step_and_shows_the_next_attempt(
    data: OrgJobsData, runner: FakeRunner
) -> None:
    runner.end = attempt_failed("The server said no.")
    job_id = data.job(of_type=SERVICE, retry=RetryPolicy(max_retries=1, backoff_ms=60_000))
    result = execute(org_job, {"job_run_id": data.run_row(job_id).id})
    page = metadata_of(result)
    assert result.success
    assert (page["status"], page["attempt"], page["error"]) == (
        "pending",
        "2 of 2",
        "The server said no.",
    )
    assert page["again_at"]


def test_a_finished_job_is_not_executed_again(data: OrgJobsData, runner: FakeRunner) -> None:
    job_id = data.job(of_type=SERVICE)
    for _ in range(2):
        assert execute(org_job, {"job_run_id": data.run_row(job_id).id}).success
    assert len(runner.asked) == 1


@pytest.mark.parametrize(
    ("run_id", "message"),
    [(99, "Job run 99 not found"), (0, "Invalid config: job_run_id: must be from 1 to ")],
)
def test_an_invalid_run_config_is_rejected_with_one_sentence(
    data: OrgJobsData, run_id: int, message: str
) -> None:
    assert refusal(execute(org_job, {"job_run_id": run_id})).startswith(message)


def make_dagster_run(
    job: str = "org_job", tags: dict[str, str] | None = None, run_id: str = "r-1", **config: object
) -> dg.DagsterRun:
    return dg.DagsterRun(
        job, run_id=run_id, run_config={"ops": {OP: {"config": config}}}, tags=tags or {}
    )


@every_case(
    ("run", "run_id"),
    [
        (make_dagster_run(job_run_id=7), 7),
        (make_dagster_run(job_run_id=0), None),
        (make_dagster_run(job_run_id="mine"), None),
        (make_dagster_run("rule_run", job_run_id=7), None),
        (dg.DagsterRun("org_job", run_id="r-2"), None),
    ],
)
def test_the_run_id_is_read_from_the_dagster_run(run: dg.DagsterRun, run_id: int | None) -> None:
    assert job_run_id_of(run) == run_id


def terminate(run: dg.DagsterRun, before: dg.DagsterRun | None = None) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        if before is not None:
            instance.add_run(before)
        instance.add_run(run)
        instance.report_run_canceled(run)
        ended = instance.get_run_by_id(run.run_id)
        assert ended
        [event] = [one.dagster_event for one in instance.all_logs(run.run_id) if one.dagster_event]
        with dg.build_run_status_sensor_context(
            "terminated_runs", event, instance, ended, resources=RESOURCES
        ) as context:
            terminated_runs(context)


def worker_for(run_id: int, number: int) -> dg.DagsterRun:
    """The Dagster run of the n-th worker request."""
    return make_dagster_run(
        tags={REQUEST_TAG: request_key(run_id, number)},
        run_id=f"worker-{number}",
        job_run_id=run_id,
    )


@pytest.mark.parametrize(("at_work", "idle"), [(1, 2), (2, 1)])
def test_terminating_the_active_worker_cancels_the_job(
    data: OrgJobsData, at_work: int, idle: int
) -> None:
    job_id = data.running_job(of_type=SERVICE)
    run_id = data.run_row(job_id).id
    data.set_run(run_id, requests=2, dagster_run_id=f"worker-{at_work}")
    terminate(worker_for(run_id, idle))
    assert data.run_row(job_id).status == "running"
    terminate(worker_for(run_id, at_work))
    run = data.run_row(job_id)
    assert (run.status, run.cancelled_by, run.cancel_reason) == ("cancelled", "dagster", TERMINATED)


def test_terminating_the_dagster_retry_of_a_dead_worker_cancels_the_job(data: OrgJobsData) -> None:
    job_id = data.running_job(of_type=SERVICE)
    run_id = data.run_row(job_id).id
    data.set_run(run_id, requests=1, dagster_run_id="dead")
    again = dg.DagsterRun(
        "org_job",
        run_id="again",
        root_run_id="dead",
        parent_run_id="dead",
        run_config={"ops": {OP: {"config": {"job_run_id": run_id}}}},
        tags={REQUEST_TAG: request_key(run_id, 1)},
    )
    terminate(again, before=dg.DagsterRun("org_job", run_id="dead"))
    assert data.run_row(job_id).status == "cancelled"


def test_before_the_start_only_terminating_the_last_requested_worker_cancels_the_job(
    data: OrgJobsData,
) -> None:
    job_id = data.job(of_type=SERVICE)
    run_id = data.run_row(job_id).id
    data.set_run(run_id, requests=2)
    terminate(worker_for(run_id, 1))
    assert data.run_row(job_id).status == "pending"
    terminate(worker_for(run_id, 2))
    assert data.run_row(job_id).status == "cancelled"


def test_the_run_stores_the_dagster_run_id_of_its_worker(data: OrgJobsData) -> None:
    job_id = data.job(of_type=SERVICE)
    result = execute(org_job, {"job_run_id": data.run_row(job_id).id})
    assert data.run_row(job_id).dagster_run_id == result.run_id


def test_terminating_a_finished_or_unknown_run_changes_nothing(data: OrgJobsData) -> None:
    job_id = data.job(of_type=SERVICE)
    execute(org_job, {"job_run_id": data.run_row(job_id).id})
    terminate(make_dagster_run(job_run_id=data.run_row(job_id).id))
    terminate(make_dagster_run(job_run_id=99))
    assert data.run_row(job_id).status == "success"


def test_a_job_that_failed_before_its_start_is_postponed(data: OrgJobsData) -> None:
    job_id = data.job(of_type=SERVICE)
    run_id = request_worker(data, job_id)
    fail_worker(run_id, number=0)
    assert data.run_row(job_id).next_attempt_at is None
    fail_worker(run_id, number=1)
    postponed = data.run_row(job_id)
    assert (postponed.status, postponed.error, postponed.requested_at) == (
        "pending",
        "DATABASE_URL is not set.",
        None,
    )
    assert postponed.next_attempt_at is not None
    assert postponed.next_attempt_at > data.now


def test_a_bug_does_not_change_the_retry_planned_by_the_policy(
    data: OrgJobsData, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fault(asked: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(runner, "work", fault)
    job_id = data.job(of_type=SERVICE, retry=RetryPolicy(max_retries=2, backoff_ms=2000))
    run_id = request_worker(data, job_id)
    assert not launch(data, org_job).success
    planned = data.run_row(job_id)
    fail_worker(run_id, number=1)
    fail_worker(run_id, number=None)
    run = data.run_row(job_id)
    assert (run.attempt_no, run.next_attempt_at, run.error) == (
        2,
        planned.next_attempt_at,
        planned.error,
    )


def fail_worker(run_id: int, number: int | None) -> None:
    """The Dagster run of the n-th request failed permanently; None: it was launched manually."""
    of_request = {} if number is None else {REQUEST_TAG: request_key(run_id, number)}
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.add_run(
            make_dagster_run(
                tags={LAUNCH_TAG: str(MOST_LAUNCHES_OF_A_JOB), **of_request}, job_run_id=run_id
            )
        )
        instance.report_run_failed(run, "DATABASE_URL is not set.")
        ended = instance.get_run_by_id(run.run_id)
        assert ended
        [event] = [one.dagster_event for one in instance.all_logs(run.run_id) if one.dagster_event]
        with dg.build_run_status_sensor_context(
            "run_failures", event, instance, ended, resources=RESOURCES
        ) as context:
            run_failures(context.for_run_failure())
