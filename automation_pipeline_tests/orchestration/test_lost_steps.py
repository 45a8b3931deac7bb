"""A step on another host that is silent for too long: its run is told dead, whatever else of it is alive."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster import DagsterRun, DagsterRunStatus
from sqlalchemy import text, update

from automation_pipeline.automation.stages.open_run import open_run
from automation_pipeline.automation.store.runs import get_run
from automation_pipeline.automation.tables import HeartbeatRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.lost_steps import lost_steps
from automation_pipeline.orchestration.watchdog import look_after_all
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_now
from automation_pipeline.storage.step_beats import RUN_WORKER, StepBeat, StepBeatRow, beats, begin_step
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule, an_opening

ON_SQLITE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def services(database: Database, database_url: str, clock: StandingClock) -> Services:
    our = Services(Settings(database_url=database_url), clock)
    vars(our)["database"] = database
    return our


def at_work(services: Services, *steps: tuple[str, str, bool]) -> None:
    """Each of a Dagster run, with its step, and whether it is silent."""
    with services.database.transaction() as session:
        for run, step, is_silent in steps:
            begin_step(session, run, step, "host:7")
            silent = update(StepBeatRow).where(StepBeatRow.dagster_run_id == run, StepBeatRow.step_key == step)
            if is_silent:
                session.execute(silent.values(beat_at=database_now(-600)))


def dagster_run(instance: dg.DagsterInstance, run_id: str, status: DagsterRunStatus) -> None:
    instance.add_run(DagsterRun("automation_run", run_id=run_id, status=status))


def status_of(instance: dg.DagsterInstance, run_id: str) -> DagsterRunStatus:
    run = instance.get_run_by_id(run_id)
    assert run
    return run.status


def left(services: Services) -> list[str]:
    with services.database.reading() as session:
        return [beat.dagster_run_id for beat in beats(session)]


def beat(run: str, seconds: float, step: str = "work[1]") -> StepBeat:
    return StepBeat(run, step, "host:7", NOW - timedelta(seconds=seconds), NOW)


def test_the_longest_silent_step_of_each_run_speaks_for_it() -> None:
    steps = [beat("d-1", 500, "a"), beat("d-2", 300), beat("d-1", 200, "b"), beat("d-3", 100)]
    lost = lost_steps(steps, timedelta(seconds=120))
    assert {(step.dagster_run_id, step.step_key) for step in lost} == {("d-1", "a"), ("d-2", "work[1]")}


@ON_SQLITE
def test_a_dead_worker_is_not_hidden_by_a_living_one(services: Services, instance: dg.DagsterInstance) -> None:
    at_work(services, ("d-1", "work[1]", True), ("d-1", "work[2]", False), ("d-1", RUN_WORKER, False))
    at_work(services, ("d-2", "work[1]", False), ("d-2", RUN_WORKER, False))
    for run in ("d-1", "d-2"):
        dagster_run(instance, run, DagsterRunStatus.STARTED)
    _, said = look_after_all(instance, services)
    assert [sentence.partition(" since")[0] for sentence in said] == [
        "Reported d-1 dead: Step work[1] on host:7 gave no sign of life"
    ]
    assert status_of(instance, "d-1") is DagsterRunStatus.FAILURE
    assert status_of(instance, "d-2") is DagsterRunStatus.STARTED


@ON_SQLITE
@pytest.mark.parametrize("status", [DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED, None])
def test_what_an_ended_run_has_left_behind_is_cleared_away(
    status: DagsterRunStatus | None, services: Services, instance: dg.DagsterInstance
) -> None:
    at_work(services, ("d-1", "work[1]", True))
    if status:
        dagster_run(instance, "d-1", status)
    assert look_after_all(instance, services) == (0, [])
    assert left(services) == []


@ON_SQLITE
@pytest.mark.parametrize("status", [DagsterRunStatus.CANCELING, DagsterRunStatus.STARTING])
def test_a_run_that_is_being_ended_is_left_to_dagster(
    status: DagsterRunStatus, services: Services, instance: dg.DagsterInstance
) -> None:
    at_work(services, ("d-1", "work[1]", True))
    dagster_run(instance, "d-1", status)
    assert look_after_all(instance, services) == (0, [])
    assert (status_of(instance, "d-1"), left(services)) == (status, ["d-1"])


@ON_SQLITE
def test_a_run_whose_steps_stand_in_a_queue_is_kept_alive_by_whoever_waits_for_them(
    services: Services, instance: dg.DagsterInstance
) -> None:
    schedule = a_schedule(services.database, services.clock)
    ticket = open_run(an_opening(schedule.id, "d-1"), database=services.database, clock=services.clock)
    dagster_run(instance, "d-1", DagsterRunStatus.STARTED)
    with services.database.transaction() as session:
        session.execute(update(HeartbeatRow).values(beat_at=database_now(-600)))
    at_work(services, ("d-1", RUN_WORKER, False))
    assert look_after_all(instance, services) == (1, [])
    with services.database.reading() as session:
        assert get_run(session, ticket.run_id).status == "running"


@ON_SQLITE
def test_a_schema_without_beats_is_looked_after_as_before(services: Services, instance: dg.DagsterInstance) -> None:
    with services.database.transaction() as session:
        session.execute(text("DROP TABLE step_beats"))
    assert look_after_all(instance, services) == (0, [])
