"""Dagster runs of cancelled automation runs are stopped, all others left alone; one that balks keeps no other."""

from collections.abc import Iterator
from datetime import timedelta

import dagster as dg
import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteRepositoryOrigin

from automation_pipeline.automation.stages.cancel_run import cancel_run
from automation_pipeline.automation.stages.finalise_run import finalise_run
from automation_pipeline.automation.stages.request_run import request_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.cancelling import terminate_cancelled
from automation_pipeline.orchestration.watchdog import look_after_all
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


# Dagster keeps no queued run that it could not launch.
ORIGIN = RemoteRepositoryOrigin(GrpcServerCodeLocationOrigin("localhost", 1), "all").get_job_origin("automation_run")


class Terminator:
    """What a launcher does when it is told to terminate: the run ends as cancelled, unless its host is gone."""

    def __init__(self, instance: DagsterInstance) -> None:
        self._instance, self.gone, self.deaf = instance, set[str](), set[str]()

    def terminate(self, run_id: str) -> bool:
        if run_id in self.gone:
            raise dg.DagsterError("No host")
        run = self._instance.get_run_by_id(run_id)
        if run is None or run_id in self.deaf:
            return False
        self._instance.report_run_canceled(run)
        return True


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def terminator(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Terminator:
    terminator = Terminator(instance)
    monkeypatch.setattr(instance.run_launcher, "terminate", terminator.terminate)
    return terminator


@pytest.fixture
def services(database: Database, database_url: str, clock: StandingClock) -> Services:
    our = Services(Settings(database_url=database_url), clock)
    vars(our)["database"] = database
    return our


def a_run(services: Services) -> int:
    schedule = a_schedule(services.database, services.clock)
    return request_run(schedule.id, database=services.database, clock=services.clock).id


def a_cancelled_run(services: Services) -> int:
    run_id = a_run(services)
    cancel_run(run_id, database=services.database, clock=services.clock)
    return run_id


def dagster_run(
    instance: DagsterInstance, name: str, run_id: int, status: DagsterRunStatus = DagsterRunStatus.STARTED
) -> None:
    tags = {"automation/run_id": str(run_id)}
    instance.add_run(DagsterRun("automation_run", run_id=name, status=status, tags=tags, remote_job_origin=ORIGIN))


def status_of(instance: DagsterInstance, name: str) -> DagsterRunStatus:
    run = instance.get_run_by_id(name)
    assert run
    return run.status


@pytest.mark.parametrize(
    ("status", "seconds", "ends"),
    [
        (DagsterRunStatus.STARTED, 6, DagsterRunStatus.CANCELED),
        (DagsterRunStatus.QUEUED, 6, DagsterRunStatus.CANCELED),
        (DagsterRunStatus.STARTED, 4, DagsterRunStatus.STARTED),
        (DagsterRunStatus.STARTED, 3601, DagsterRunStatus.STARTED),
        (DagsterRunStatus.SUCCESS, 6, DagsterRunStatus.SUCCESS),
        (DagsterRunStatus.CANCELING, 6, DagsterRunStatus.CANCELING),
    ],
)
def test_what_still_works_for_a_cancelled_run_is_terminated_after_a_moment(
    status: DagsterRunStatus, seconds: int, ends: DagsterRunStatus,
    services: Services, instance: DagsterInstance, terminator: Terminator, clock: StandingClock,
) -> None:  # fmt: skip
    dagster_run(instance, "d-1", a_cancelled_run(services), status)
    clock.pass_time(timedelta(seconds=seconds))
    said = terminate_cancelled(instance, services)
    assert status_of(instance, "d-1") is ends
    assert said == (["Terminated d-1"] if status is not ends else [])


def test_runs_at_work_or_broken_down_are_left_alone(
    services: Services, instance: DagsterInstance, terminator: Terminator, clock: StandingClock
) -> None:
    broken, at_work, cancelled = a_run(services), a_run(services), a_cancelled_run(services)
    finalise_run(broken, database=services.database, clock=clock, breakdown="The worker died")
    for number, run_id in enumerate((broken, at_work, cancelled), start=1):
        dagster_run(instance, f"d-{number}", run_id)
    clock.pass_time(timedelta(seconds=6))
    assert terminate_cancelled(instance, services) == ["Terminated d-3"]
    assert terminate_cancelled(instance, services) == []


def test_one_that_cannot_be_reached_does_not_keep_the_others(
    services: Services, instance: DagsterInstance, terminator: Terminator, clock: StandingClock
) -> None:
    for name in ("d-1", "d-2", "d-3"):
        dagster_run(instance, name, a_cancelled_run(services))
    terminator.gone, terminator.deaf = {"d-3"}, {"d-2"}
    clock.pass_time(timedelta(seconds=6))
    assert sorted(terminate_cancelled(instance, services)) == [
        "Terminated d-1",
        "d-2 was cancelled and cannot be reached",
        "d-3 was cancelled and cannot be terminated: No host",
    ]


def test_the_watchdog_sees_to_it(
    services: Services, instance: DagsterInstance, terminator: Terminator, clock: StandingClock
) -> None:
    dagster_run(instance, "d-1", a_cancelled_run(services))
    clock.pass_time(timedelta(seconds=6))
    assert look_after_all(instance, services) == (0, ["Terminated d-1"])
