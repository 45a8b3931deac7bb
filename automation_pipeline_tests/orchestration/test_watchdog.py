"""The watchdog on a real Dagster instance: who is closed, with which words, and who is left alone."""

from collections.abc import Iterator
from datetime import timedelta

import dagster as dg
import pytest
from dagster import DagsterRun, DagsterRunStatus
from sqlalchemy import update

from automation_pipeline.automation.domain.run import Run
from automation_pipeline.automation.stages.open_run import open_run
from automation_pipeline.automation.stages.request_run import request_run
from automation_pipeline.automation.store.runs import get_run
from automation_pipeline.automation.tables import HeartbeatRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.watchdog import look_after_all
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_now
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule, an_opening

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def services(database: Database, database_url: str, clock: StandingClock) -> Services:
    our = Services(Settings(database_url=database_url), clock)
    vars(our)["database"] = database
    return our


def dagster_run(instance: dg.DagsterInstance, run_id: str, status: DagsterRunStatus, **tags: str) -> DagsterRun:
    named = {name.replace("__", "/"): value for name, value in tags.items()}
    return instance.add_run(DagsterRun("automation_run", run_id=run_id, status=status, tags=named))


def opened(services: Services, *, silent: bool = False) -> int:
    schedule = a_schedule(services.database, services.clock)
    ticket = open_run(an_opening(schedule.id, "d-1"), database=services.database, clock=services.clock)
    if silent:
        with services.database.transaction() as session:
            session.execute(update(HeartbeatRow).values(beat_at=database_now(-600)))
    return ticket.run_id


def look(services: Services, instance: dg.DagsterInstance, run_id: int) -> Run:
    look_after_all(instance, services)
    with services.database.reading() as session:
        return get_run(session, run_id)


def test_a_terminated_run_is_closed_in_those_words(services: Services, instance: dg.DagsterInstance) -> None:
    run_id = opened(services)
    dagster_run(instance, "d-1", DagsterRunStatus.CANCELED)
    run = look(services, instance, run_id)
    assert (run.status, run.error_message) == ("failed", "The run was terminated in Dagster")


def test_a_failed_run_is_left_while_dagster_will_try_again(services: Services, instance: dg.DagsterInstance) -> None:
    run_id = opened(services, silent=True)
    dagster_run(instance, "d-1", DagsterRunStatus.FAILURE, dagster__will_retry="true")
    assert look(services, instance, run_id).status == "running"


def test_a_failed_run_that_is_not_tried_again_is_closed(services: Services, instance: dg.DagsterInstance) -> None:
    run_id = opened(services)
    dagster_run(instance, "d-1", DagsterRunStatus.FAILURE, dagster__will_retry="false")
    run = look(services, instance, run_id)
    assert run.status == "failed"
    assert run.error_message == "Nobody works on the run any more: its Dagster run ended as FAILURE"


def test_a_run_that_beats_is_left_alone(services: Services, instance: dg.DagsterInstance) -> None:
    run_id = opened(services)
    dagster_run(instance, "d-1", DagsterRunStatus.STARTED)
    assert look(services, instance, run_id).status == "running"


def test_a_silent_run_is_reported_dead_so_that_dagster_tries_again(
    services: Services, instance: dg.DagsterInstance
) -> None:
    run_id = opened(services, silent=True)
    dagster_run(instance, "d-1", DagsterRunStatus.STARTED)
    assert look(services, instance, run_id).status == "running"
    reported = instance.get_run_by_id("d-1")
    assert reported
    assert reported.status is DagsterRunStatus.FAILURE


@pytest.mark.parametrize(("silent", "status"), [(True, "failed"), (False, "running")])
def test_a_run_whose_dagster_run_is_unknown_is_closed_when_it_is_silent(
    silent: bool, status: str, services: Services, instance: dg.DagsterInstance
) -> None:
    run_id = opened(services, silent=silent)
    assert look(services, instance, run_id).status == status


@pytest.mark.parametrize(
    ("status", "minutes", "ends"),
    [
        (DagsterRunStatus.CANCELED, 10, "failed"),
        (DagsterRunStatus.CANCELED, 0, "pending"),
        (DagsterRunStatus.STARTING, 10, "pending"),
        (None, 10, "pending"),
    ],
)
def test_a_run_that_was_asked_for_and_never_opened_does_not_wait_for_ever(
    status: DagsterRunStatus | None, minutes: int, ends: str,
    services: Services, instance: dg.DagsterInstance, clock: StandingClock,
) -> None:  # fmt: skip
    schedule = a_schedule(services.database, clock)
    run = request_run(schedule.id, database=services.database, clock=clock)
    if status is not None:
        dagster_run(instance, "d-1", status, automation__run_id=str(run.id))
    clock.pass_time(timedelta(minutes=minutes))
    assert look(services, instance, run.id).status == ends
