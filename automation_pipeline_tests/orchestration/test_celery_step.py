"""What a worker does about a message: begin it, answer what is known, leave it to another, or let it lie."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from celery import Celery
from celery.exceptions import Ignore
from dagster._core.definitions.reconstruct import reconstructable
from dagster._core.execution.api import create_execution_plan
from dagster._core.execution.plan.state import KnownExecutionState
from dagster._core.execution.retries import RetryMode
from dagster._grpc.types import ExecuteStepArgs
from dagster._serdes import pack_value
from dagster_celery.make_app import make_app
from dagster_celery.tasks import create_task

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration import celery_step, delivered_step
from automation_pipeline.orchestration.celery_step import CeleryStep
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.step_beats import beats, begin_step
from automation_pipeline_tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
DONE: list[str] = []


@dg.op
def work(context: dg.OpExecutionContext) -> None:
    DONE.append(context.run_id)


@dg.op
def wait(context: dg.OpExecutionContext) -> None:
    """Until it is stopped."""
    run = context.instance.get_run_by_id(context.run_id)
    assert run
    context.instance.report_run_canceling(run)
    wait_until(lambda: False)


@dg.job
def working() -> None:
    work()


@dg.job
def waiting() -> None:
    wait()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        yield instance


@pytest.fixture
def services(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Services:
    DONE.clear()
    our = Services(Settings(database_url=database_url, automation_heartbeat_seconds=0.05))
    vars(our)["database"] = database
    monkeypatch.setattr(celery_step, "services", lambda: our)
    return our


@pytest.fixture
def app() -> Celery:
    made = make_app()
    create_task(made, base=CeleryStep)
    return made


def started(instance: dg.DagsterInstance, job: dg.JobDefinition) -> dg.DagsterRun:
    run = instance.create_run_for_job(job)
    instance.report_engine_event("begun", run)
    return run


def deliver(app: Celery, run: dg.DagsterRun, job: dg.JobDefinition, instance: dg.DagsterInstance) -> list[str]:
    known = reconstructable(job)
    plan = create_execution_plan(known)
    asked = ExecuteStepArgs(
        job_origin=known.get_python_origin(),
        run_id=run.run_id,
        step_keys_to_execute=plan.step_keys_to_execute,
        instance_ref=instance.get_ref(),
        retry_mode=RetryMode.DISABLED,
        known_state=KnownExecutionState(),
        print_serialized_events=True,
    )
    return app.tasks["execute_plan"](pack_value(asked), known.to_dict())


def begin_elsewhere(services: Services, run: dg.DagsterRun) -> None:
    with services.database.transaction() as session:
        begin_step(session, run.run_id, "work", "elsewhere:1")


def at_work(services: Services) -> list[str]:
    with services.database.reading() as session:
        return [beat.worker for beat in beats(session)]


def test_a_step_is_done_and_what_it_says_comes_back(
    app: Celery, instance: dg.DagsterInstance, services: Services
) -> None:
    run = started(instance, working)
    answer = deliver(app, run, working, instance)
    assert any("STEP_SUCCESS" in event for event in answer)
    assert (DONE, at_work(services)) == ([run.run_id], [])


def test_a_step_that_is_done_is_told_and_not_done_again(
    app: Celery, instance: dg.DagsterInstance, services: Services
) -> None:
    run = started(instance, working)
    deliver(app, run, working, instance)
    assert any("STEP_SUCCESS" in event for event in deliver(app, run, working, instance))
    assert [run.run_id] == DONE


@pytest.mark.parametrize("ended", ["report_run_failed", "report_run_canceled", "report_run_canceling"])
def test_a_message_of_a_run_that_is_over_lies(
    ended: str, app: Celery, instance: dg.DagsterInstance, services: Services
) -> None:
    run = started(instance, working)
    getattr(instance, ended)(run)
    assert deliver(app, run, working, instance) == []
    assert (DONE, at_work(services)) == ([], [])


def test_a_step_at_work_is_left_to_whoever_works_on_it(
    app: Celery, instance: dg.DagsterInstance, services: Services
) -> None:
    run = started(instance, working)
    begin_elsewhere(services, run)
    with pytest.raises(Ignore):
        deliver(app, run, working, instance)
    assert (DONE, at_work(services)) == ([], ["elsewhere:1"])


def test_a_message_that_comes_again_is_taken_over(
    app: Celery, instance: dg.DagsterInstance, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(instance, working)
    begin_elsewhere(services, run)
    monkeypatch.setattr(CeleryStep, "request", Redelivered())
    deliver(app, run, working, instance)
    assert (DONE, at_work(services)) == ([run.run_id], [])


def test_a_step_that_every_process_dies_of_ends(
    app: Celery, instance: dg.DagsterInstance, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(instance, working)
    begin_elsewhere(services, run)
    monkeypatch.setattr(CeleryStep, "request", Redelivered())
    monkeypatch.setattr(delivered_step, "MOST_DELIVERIES", 1)
    with pytest.raises(delivered_step.WorkerKillerError, match="work was begun 1 times"):
        deliver(app, run, working, instance)
    assert (DONE, at_work(services)) == ([], [])


def test_a_step_at_work_stops_when_its_run_is_cancelled(
    app: Celery, instance: dg.DagsterInstance, services: Services
) -> None:
    run = started(instance, waiting)
    assert deliver(app, run, waiting, instance) == []
    assert at_work(services) == []


class Redelivered:
    hostname = "one@host"
    delivery_info = {"redelivered": True}  # noqa: RUF012  Celery's own shape
