"""The sensors that launch requests, find lost runs and close the work of failed ones."""

from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster import DagsterEvent, DagsterEventType, DagsterRun, DagsterRunStatus

from automation_pipeline import bootstrap
from automation_pipeline.automation.queries.runs import get_run
from automation_pipeline.automation.runs import open_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.automation import reconcile_stale_runs
from automation_pipeline.defs.housekeeping import (
    REQUESTS_PER_TICK,
    launch_requests,
    run_failures,
    terminated_runs,
)
from automation_pipeline.defs.transcription import sweep_transcription_runs
from automation_pipeline.orchestration.job_registry import LAUNCH_TAG, REQUEST_TAG
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import (
    NewRunRequest,
    file_requests,
    filed_requests,
    mark_taken,
)
from automation_pipeline_tests.factories import make_launch, make_schedule

RESOURCES = {"services": ServicesResource()}


@pytest.fixture(autouse=True)
def services(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Services:
    built = Services(Settings(database_url=database_url))
    vars(built)["database"] = database
    monkeypatch.setattr(bootstrap, "services", lambda: built)
    return built


def file(database: Database, *keys: str) -> None:
    requests = [NewRunRequest(key, "audit_rerun", {"audit_id": 1}, {}) for key in keys]
    with database.transaction() as session:
        file_requests(session, requests, datetime.now(UTC))


def message(result: object) -> str:
    assert isinstance(result, dg.SkipReason)
    return result.skip_message or ""


def test_a_tick_launches_at_most_a_hundred_requests(database: Database) -> None:
    file(database, *(f"rerun-{number:03}" for number in range(101)))
    ticks = []
    for _ in range(2):
        with dg.build_sensor_context(resources=RESOURCES) as context:
            result = launch_requests(context)
        assert isinstance(result, dg.SensorResult)
        ticks.append([request.run_key for request in result.run_requests or ()])
    assert ticks == [[f"rerun-{number:03}" for number in range(100)], ["rerun-100"]]
    assert REQUESTS_PER_TICK == 100
    with dg.build_sensor_context(resources=RESOURCES) as context:
        assert message(launch_requests(context)) == "No request is waiting."


def test_sensors_report_that_no_work_is_lost() -> None:
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(instance, resources=RESOURCES) as context,
    ):
        assert message(reconcile_stale_runs(context)) == "Checked 0 runs, none is stale."
        assert message(sweep_transcription_runs(context)) == "No transcription run is abandoned."


def evaluate_failure(instance: dg.DagsterInstance, run: DagsterRun) -> object:
    event = DagsterEvent(DagsterEventType.RUN_FAILURE.value, run.job_name)
    with dg.build_run_status_sensor_context(
        "run_failures", event, instance, run, resources=RESOURCES
    ) as context:
        return run_failures(context.for_run_failure())


def failed_run(instance: dg.DagsterInstance, run_id: str, **tags: str) -> DagsterRun:
    run = instance.add_run(
        DagsterRun("audit_rerun", run_id=run_id, status=DagsterRunStatus.NOT_STARTED, tags=tags)
    )
    instance.report_run_failed(run, "Run process 7 unexpectedly exited.")
    failed = instance.get_run_by_id(run_id)
    assert failed
    return failed


def states(database: Database, key: str) -> list[tuple[str, int, str | None]]:
    with database.reading() as session:
        return [(one.state, one.launch, one.reason) for one in filed_requests(session, [key])]


def test_a_lost_run_is_launched_again_and_a_failed_one_refuses_its_request(
    database: Database,
) -> None:
    file(database, "rerun-1")
    with database.transaction() as session:
        mark_taken(session, "rerun-1", "r-1")
    with dg.DagsterInstance.ephemeral() as instance:
        run = failed_run(instance, "r-1", **{REQUEST_TAG: "rerun-1", LAUNCH_TAG: "1"})
        assert message(evaluate_failure(instance, run)) == "r-1 was lost. Requested another launch."
        assert states(database, "rerun-1") == [("waiting", 2, None)]
        last = failed_run(instance, "r-4", **{REQUEST_TAG: "rerun-1", LAUNCH_TAG: "4"})
        assert evaluate_failure(instance, last) is None
        assert states(database, "rerun-1") == [("refused", 2, "Run process 7 unexpectedly exited.")]
        instance.delete_run("r-1")
        assert message(evaluate_failure(instance, run)) == "Dagster has deleted r-1."


def test_an_automation_run_without_a_ledger_entry_is_skipped() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.add_run(
            DagsterRun("automation_run", run_id="d-1", status=DagsterRunStatus.FAILURE)
        )
        assert message(evaluate_failure(instance, run)) == "No automation run waits for d-1."


def evaluate_termination(instance: dg.DagsterInstance, run: DagsterRun) -> object:
    event = DagsterEvent(DagsterEventType.PIPELINE_CANCELED.value, run.job_name)
    with dg.build_run_status_sensor_context(
        "terminated_runs", event, instance, run, resources=RESOURCES
    ) as context:
        return terminated_runs(context)


def test_a_terminated_automation_run_is_cancelled(services: Services, database: Database) -> None:
    schedule = make_schedule(database, services.clock)
    opened = open_run(make_launch(schedule.id, "d-1"), database=database, clock=services.clock)
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.add_run(
            DagsterRun("automation_run", run_id="d-1", status=DagsterRunStatus.CANCELED)
        )
        assert message(evaluate_termination(instance, run)) == "No request waits for d-1."
    with database.reading() as session:
        assert get_run(session, opened.run_id).status == "cancelled"
