"""The watchdog on a real Dagster instance: the runs that it closes, and those that it retries."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster import DagsterRun, DagsterRunStatus
from sqlalchemy import select, update

from automation_pipeline.automation.models.runs import Run, RunAttempt
from automation_pipeline.automation.queries.runs import get_run
from automation_pipeline.automation.runs import cancel_run, open_run, request_run
from automation_pipeline.automation.tables import FicheResultRow, HeartbeatRow, RunRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.job_registry import LAUNCH_TAG, REQUEST_TAG
from automation_pipeline.orchestration.recovery import Ending, Engine
from automation_pipeline.orchestration.watchdog import check_all_runs, launch_again
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import (
    RUN_WORKER,
    StepHeartbeatRow,
    record_step_heartbeat,
)
from automation_pipeline.storage.run_requests import (
    NewRunRequest,
    RunRequestRow,
    file_requests,
    offer_waiting,
)
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.factories import make_launch, make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock

S = DagsterRunStatus


@pytest.fixture
def clock() -> FakeClock:
    """Starts at the current time, like Dagster's clock."""
    return FakeClock(datetime.now(UTC))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def services(database: Database, database_url: str, clock: FakeClock) -> Services:
    built = Services(Settings(database_url=database_url), clock)
    vars(built)["database"] = database
    return built


def dagster_run(
    instance: dg.DagsterInstance,
    name: str,
    status: DagsterRunStatus,
    /,
    job: str = "automation_run",
    **tags: str,
) -> DagsterRun:
    named = {f"automation/{name}": value for name, value in tags.items()}
    return instance.add_run(DagsterRun(job, run_id=name, status=status, tags=named))


def crashed(instance: dg.DagsterInstance, name: str, /, **tags: str) -> None:
    """A run that started and ended without a step failure."""
    run = dagster_run(instance, name, S.NOT_STARTED, **tags)
    instance.handle_new_event(_event(run, dg.DagsterEventType.RUN_START))
    instance.report_run_failed(run, "Run process 7 unexpectedly exited.")


def _event(run: DagsterRun, kind: dg.DagsterEventType, seconds_ago: float = 0) -> dg.EventLogEntry:
    happened = dg.DagsterEvent(kind.value, run.job_name)
    return dg.EventLogEntry(
        error_info=None, level=10, user_message="", run_id=run.run_id,
        timestamp=datetime.now(UTC).timestamp() - seconds_ago, job_name=run.job_name, dagster_event=happened,
    )  # fmt: skip


def opened(services: Services, *, silent: bool = False) -> int:
    schedule = make_schedule(services.database, services.clock)
    ticket = open_run(
        make_launch(schedule.id, "d-1"), database=services.database, clock=services.clock
    )
    if silent:
        with services.database.transaction() as session:
            session.execute(update(HeartbeatRow).values(beat_at=database_now(-600)))
    return ticket.run_id


def check_run(services: Services, instance: dg.DagsterInstance, run_id: int) -> Run:
    check_all_runs(instance, services)
    with services.database.reading() as session:
        return get_run(session, run_id)


def launches(services: Services) -> list[tuple[str, str, int]]:
    with services.database.reading() as session:
        row = RunRequestRow
        return list(
            session.execute(
                select(row.request_key, row.state, row.launch).order_by(row.id)
            ).tuples()
        )


def test_a_lost_run_without_a_request_gets_exactly_one(
    services: Services, instance: dg.DagsterInstance
) -> None:
    run_id = opened(services)
    crashed(instance, "d-1", run_id=str(run_id))
    assert check_run(services, instance, run_id).status == "running"
    assert check_run(services, instance, run_id).status == "running"
    assert launches(services) == [(f"automation-run-{run_id}", "waiting", 2)]


def test_a_lost_launch_is_requested_again_with_its_own_run_key(
    services: Services, instance: dg.DagsterInstance
) -> None:
    schedule = make_schedule(services.database, services.clock)
    run = request_run(schedule.id, database=services.database, clock=services.clock)
    crashed(instance, "d-1", run_id=str(run.id), launch="1")
    check_all_runs(instance, services)
    check_all_runs(instance, services)
    with services.database.transaction() as session:
        [request] = offer_waiting(session, limit=9)
    assert (request.key, request.run_key) == (
        f"automation-run-{run.id}",
        f"automation-run-{run.id}-attempt-2",
    )


def lose_an_attempt(
    services: Services, instance: dg.DagsterInstance, run_id: int, number: int, *, fiches: int = 0
) -> Run:
    """Open the next attempt as a launched run does, select the fiches, and crash it."""
    with services.database.reading() as session:
        row = session.get_one(RunRow, run_id)
        schedule_id, key = row.schedule_id, row.request_key
        request = session.scalar(select(RunRequestRow).where(RunRequestRow.request_key == key))
        launch = str(request.launch if request else 1)
    again = make_launch(schedule_id, f"d-{number}", run_id=run_id, is_next=True)
    open_run(again, database=services.database, clock=services.clock)
    with services.database.transaction() as session:
        for position in range(fiches):
            session.add(make_fiche(run_id, number, position, services.clock.now()))
    crashed(instance, f"d-{number}", run_id=str(run_id), launch=launch)
    return check_run(services, instance, run_id)


def make_fiche(run_id: int, number: int, position: int, now: datetime) -> FicheResultRow:
    return FicheResultRow(
        run_id=run_id, fiche_id=f"{number}-{position}", position=position, batch=0, status="pending",
        created_at=now, updated_at=now,
    )  # fmt: skip


def test_three_consecutive_lost_attempts_without_progress_fail_the_run(
    services: Services, instance: dg.DagsterInstance
) -> None:
    run_id = opened(services)
    crashed(instance, "d-1", run_id=str(run_id))
    check_all_runs(instance, services)
    assert lose_an_attempt(services, instance, run_id, 2).status == "running"
    run = lose_an_attempt(services, instance, run_id, 3)
    assert run.status == "failed"
    assert run.error_message
    assert run.error_message.startswith(
        "3 attempts in a row were lost without progress. The last one: "
    )


def test_progress_between_lost_attempts_keeps_the_run_open(
    services: Services, instance: dg.DagsterInstance
) -> None:
    run_id = opened(services)
    crashed(instance, "d-1", run_id=str(run_id))
    check_all_runs(instance, services)
    for number in range(2, 8):
        assert lose_an_attempt(services, instance, run_id, number, fiches=1).status == "running"
    assert lose_an_attempt(services, instance, run_id, 8).status == "running"
    assert lose_an_attempt(services, instance, run_id, 9).status == "running"
    assert lose_an_attempt(services, instance, run_id, 10).status == "failed"


def test_a_terminated_run_is_cancelled_with_that_reason(
    services: Services, instance: dg.DagsterInstance
) -> None:
    run_id = opened(services)
    dagster_run(instance, "d-1", S.CANCELED)
    run = check_run(services, instance, run_id)
    assert (run.status, run.error_message) == ("cancelled", "The run was terminated in Dagster")


def test_a_started_run_without_a_heartbeat_is_reported_as_failed(
    services: Services, instance: dg.DagsterInstance
) -> None:
    run_id = opened(services)
    run = dagster_run(instance, "d-1", S.NOT_STARTED, run_id=str(run_id))
    instance.handle_new_event(_event(run, dg.DagsterEventType.RUN_START))
    with services.database.transaction() as session:
        record_step_heartbeat(session, "d-1", RUN_WORKER, "host:1")
    check_all_runs(instance, services)
    assert (instance.get_run_by_id("d-1") or run).status is S.STARTED
    with services.database.transaction() as session:
        session.execute(update(StepHeartbeatRow).values(beat_at=database_now(-26)))
    check_all_runs(instance, services)
    assert (instance.get_run_by_id("d-1") or run).status is S.FAILURE
    assert [state for _, state, _ in launches(services)] == ["waiting"]


def test_a_closed_run_whose_host_is_lost_succeeds_with_its_final_status(
    services: Services, instance: dg.DagsterInstance
) -> None:
    run_id = opened(services)
    run = dagster_run(instance, "d-1", S.NOT_STARTED, run_id=str(run_id))
    instance.handle_new_event(_event(run, dg.DagsterEventType.RUN_START, seconds_ago=60))
    with services.database.transaction() as session:
        session.execute(update(RunRow).values(status="partial", completed_at=services.clock.now()))
    check_all_runs(instance, services)
    ended = instance.get_run_by_id("d-1") or run
    assert (ended.status, ended.tags["automation/status"]) == (S.SUCCESS, "partial")
    [event] = instance.all_logs("d-1", of_type=dg.DagsterEventType.RUN_SUCCESS)
    assert "The automation run was closed before, as partial." in event.message
    assert launches(services) == []


@pytest.mark.parametrize(("seconds", "requested"), [(5, []), (22, ["waiting"])])
def test_a_launch_that_never_started_is_repeated_after_a_pause(
    services: Services, instance: dg.DagsterInstance, seconds: int, requested: list[str]
) -> None:
    run_id = opened(services)
    run = dagster_run(instance, "d-1", S.NOT_STARTED, run_id=str(run_id))
    instance.handle_new_event(_event(run, dg.DagsterEventType.RUN_FAILURE, seconds))
    assert check_run(services, instance, run_id).status == "running"
    assert [state for _, state, _ in launches(services)] == requested


def test_a_run_of_another_code_location_is_ignored(
    services: Services, instance: dg.DagsterInstance
) -> None:
    run = dagster_run(instance, "theirs", S.NOT_STARTED, job="their_job")
    instance.handle_new_event(_event(run, dg.DagsterEventType.RUN_START))
    services.settings.__dict__["automation_lost_after_seconds"] = -1.0
    check_all_runs(instance, services)
    assert (instance.get_run_by_id("theirs") or run).status is S.STARTED


@pytest.mark.parametrize("status", [S.STARTING, S.STARTED])
def test_a_cancelled_pending_run_ends_its_dagster_run(
    status: DagsterRunStatus, services: Services, instance: dg.DagsterInstance, clock: FakeClock
) -> None:
    schedule = make_schedule(services.database, clock)
    run = request_run(schedule.id, database=services.database, clock=clock)
    cancel_run(run.id, database=services.database, clock=clock)
    dagster_run(instance, "d-1", status, run_id=str(run.id))
    for _ in range(6):
        clock.advance_one_second()
    actions = check_all_runs(instance, services)
    assert "Terminated d-1" in str(actions)
    ended = instance.get_run_by_id("d-1")
    assert ended
    assert ended.status is S.CANCELED


@pytest.mark.parametrize(("opened_by", "status"), [("d-1", S.STARTED), ("d-2", S.CANCELED)])
def test_a_re_execution_of_a_cancelled_run_is_terminated_only_if_it_works_on_that_run(
    opened_by: str, status: DagsterRunStatus, services: Services, instance: dg.DagsterInstance,
    clock: FakeClock,
) -> None:  # fmt: skip
    schedule = make_schedule(services.database, clock)
    ticket = open_run(make_launch(schedule.id, opened_by), database=services.database, clock=clock)
    cancel_run(ticket.run_id, database=services.database, clock=clock)
    # Dagster copies the tags of the parent to a re-execution.
    repeat = DagsterRun(
        "automation_run", run_id="d-2", status=S.STARTED, parent_run_id="d-1", root_run_id="d-1",
        tags={"automation/run_id": str(ticket.run_id)},
    )  # fmt: skip
    instance.add_run(repeat)
    beat(services, "d-2", RUN_WORKER, seconds_ago=0)
    for _ in range(6):
        clock.advance_one_second()
    check_all_runs(instance, services)
    assert (instance.get_run_by_id("d-2") or repeat).status is status


def test_a_lost_job_run_is_launched_again_three_times(
    services: Services, instance: dg.DagsterInstance
) -> None:
    request = NewRunRequest("transcribe-7", "transcribe_fiche", {"fiche_id": "7"}, {})
    with services.database.transaction() as session:
        file_requests(session, [request], services.clock.now())
    lost = Ending(Engine.CRASHED, "gone")
    again = []
    for launch in ("1", "1", "2", "3", "4"):
        tags = {REQUEST_TAG: "transcribe-7", LAUNCH_TAG: launch}
        again.append(
            launch_again(
                DagsterRun("transcribe_fiche", run_id=f"d-{launch}", tags=tags), lost, services
            )
        )
    assert again == [True, True, True, True, False]
    assert launches(services) == [("transcribe-7", "waiting", 4)]
    own = Ending(Engine.FAILED, "The fiche does not exist")
    tags = {REQUEST_TAG: "transcribe-7", LAUNCH_TAG: "1"}
    assert not launch_again(DagsterRun("transcribe_fiche", run_id="d-9", tags=tags), own, services)


def test_opening_a_finished_run_returns_its_last_attempt(services: Services) -> None:
    run_id = opened(services)
    cancel_run(run_id, database=services.database, clock=services.clock)
    with services.database.reading() as session:
        schedule_id = get_run(session, run_id).schedule_id
    late = make_launch(schedule_id, "d-2", run_id=run_id, is_next=True)
    assert open_run(late, database=services.database, clock=services.clock) == RunAttempt(run_id, 1)


def started(instance: dg.DagsterInstance, name: str, **tags: str) -> DagsterRun:
    run = dagster_run(instance, name, S.NOT_STARTED, **tags)
    instance.handle_new_event(_event(run, dg.DagsterEventType.RUN_START))
    return run


def beat(services: Services, run_id: str, *steps: str, seconds_ago: float) -> None:
    with services.database.transaction() as session:
        for step in steps:
            record_step_heartbeat(session, run_id, step, "host:1")
            session.execute(
                update(StepHeartbeatRow)
                .where(StepHeartbeatRow.step_key == step)
                .values(beat_at=database_now(-seconds_ago))
            )


def messages(instance: dg.DagsterInstance, run_id: str, kind: dg.DagsterEventType) -> list[str]:
    return [str(entry.message) for entry in instance.all_logs(run_id, of_type=kind)]


def test_a_lost_step_fails_its_run_although_the_process_of_the_run_is_alive(
    services: Services, instance: dg.DagsterInstance
) -> None:
    started(instance, "d-1")
    beat(services, "d-1", RUN_WORKER, seconds_ago=1)
    beat(services, "d-1", "audit_batch[batch_1]", seconds_ago=40)
    assert check_all_runs(instance, services) == (0, ["Reported d-1 lost"])
    [message] = messages(instance, "d-1", dg.DagsterEventType.RUN_FAILURE)
    assert "Step audit_batch[batch_1] on host:1 sent no heartbeat for 40 seconds." in message


def test_a_lost_run_that_was_being_terminated_is_cancelled(
    services: Services, instance: dg.DagsterInstance
) -> None:
    run = started(instance, "d-1")
    instance.handle_new_event(_event(run, dg.DagsterEventType.PIPELINE_CANCELING))
    beat(services, "d-1", RUN_WORKER, seconds_ago=30)
    assert check_all_runs(instance, services) == (0, ["Reported d-1 lost"])
    assert (instance.get_run_by_id("d-1") or run).status is S.CANCELED
    [message] = messages(instance, "d-1", dg.DagsterEventType.PIPELINE_CANCELED)
    assert "The process of the run sent no heartbeat for 30 seconds." in message


def test_silent_heartbeats_of_ended_and_deleted_runs_are_removed(
    services: Services, instance: dg.DagsterInstance
) -> None:
    dagster_run(instance, "ended", S.SUCCESS)
    dagster_run(instance, "waiting", S.NOT_STARTED)
    for name in ("ended", "deleted", "waiting"):
        beat(services, name, f"step of {name}", seconds_ago=40)
    beat(services, "recent", "step of recent", seconds_ago=20)
    assert check_all_runs(instance, services) == (0, [])
    with services.database.reading() as session:
        left = set(session.scalars(select(StepHeartbeatRow.dagster_run_id)))
    assert left == {"waiting", "recent"}


def test_a_run_with_a_failed_step_or_a_refused_request_fails_with_that_reason(
    services: Services, instance: dg.DagsterInstance
) -> None:
    schedule = make_schedule(services.database, services.clock)
    refused = request_run(schedule.id, database=services.database, clock=services.clock)
    with services.database.transaction() as session:
        session.execute(update(RunRequestRow).values(state="refused", reason="No such job."))
    run = check_run(services, instance, refused.id)
    assert (run.status, run.error_message) == ("failed", "No such job.")
    run_id = opened(services, silent=True)
    ended = dagster_run(instance, "d-1", S.SUCCESS, run_id=str(run_id))
    run = check_run(services, instance, run_id)
    assert ended
    assert (run.status, run.error_message) == (
        "failed",
        "The Dagster run succeeded without ending the automation run",
    )


def test_an_error_with_one_run_does_not_stop_the_check_of_others(
    services: Services, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("d-1", "d-2"):
        started(instance, name)
        beat(services, name, f"step of {name}", seconds_ago=40)
    report_failure = type(instance).report_run_failed

    def fail_once(self: dg.DagsterInstance, run: DagsterRun, message: str) -> object:
        if run.run_id == "d-1":
            raise PermanentError("no answer")
        return report_failure(self, run, message)

    monkeypatch.setattr(type(instance), "report_run_failed", fail_once)
    _, actions = check_all_runs(instance, services)
    failed, reported = sorted(actions, key=len, reverse=True)
    assert failed.endswith("no answer")
    assert reported == "Reported d-2 lost"
