"""AUTOMATION_RUN jobs: request a run in the transaction of the job, follow it, cancel it."""

from typing import Any

import pytest
from sqlalchemy import event, func, select

from automation_pipeline.automation.runs import cancel_run, request_run
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.clients.service_jobs import AutomationRunJob
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.org_jobs.ports import RemoteRunner
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.clients.service_jobs.job_contexts import (
    Killed,
    job_context,
    killed_after,
)
from automation_pipeline_tests.factories import make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock


@pytest.fixture
def runner(database: Database, clock: FakeClock) -> RemoteRunner:
    return AutomationRunJob(database, clock)


def rows(database: Database) -> tuple[int, int]:
    """Numbers of runs and of run requests."""
    with database.reading() as session:
        counts = (
            session.scalar(select(func.count()).select_from(table)) or 0
            for table in (RunRow, RunRequestRow)
        )
        return next(counts), next(counts)


def make_followed_run(runner: RemoteRunner, database: Database, clock: FakeClock) -> dict[str, Any]:
    return dict(
        runner.start(job_context("AUTOMATION_RUN", scheduleId=make_schedule(database, clock).id))
    )


def end_run(following: dict[str, Any], database: Database, **columns: Any) -> None:
    """Ends the run as a worker would."""
    with database.transaction() as session:
        row = session.get_one(RunRow, int(following["automationRunId"]))
        row.completed_at, row.duration_ms = row.started_at, 0
        for name, value in columns.items():
            setattr(row, name, value)


def test_starting_the_job_requests_a_run_and_follows_it(
    runner: RemoteRunner, database: Database, clock: FakeClock
) -> None:
    following = make_followed_run(runner, database, clock)
    assert rows(database) == (1, 1)
    assert set(following) == {"automationRunId"}
    assert runner.find_ended({5: following}) == {}


def test_a_rolled_back_start_requests_no_run(
    runner: RemoteRunner, database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock)
    with pytest.raises(Killed):
        killed_after(
            lambda: runner.start(job_context("AUTOMATION_RUN", scheduleId=schedule.id)), database
        )
    assert rows(database) == (0, 0)


def test_a_busy_paused_or_deleted_schedule_is_reported(
    runner: RemoteRunner, database: Database, clock: FakeClock
) -> None:
    schedule, paused = (
        make_schedule(database, clock),
        make_schedule(database, clock, isActive=False),
    )
    request_run(schedule.id, database=database, clock=clock)
    for schedule_id, error in (
        (schedule.id, ConflictError),
        (paused.id, ConflictError),
        (99, NotFoundError),
    ):
        with pytest.raises(error):
            runner.start(job_context("AUTOMATION_RUN", scheduleId=schedule_id))
    assert rows(database) == (1, 1)


@pytest.mark.parametrize(
    ("columns", "status", "code", "error"),
    [
        ({"status": "completed", "successful_fiches": 3}, "success", None, None),
        ({"status": "partial", "successful_fiches": 2, "failed_fiches": 1}, "success", None, None),
        (
            {"status": "failed", "failed_fiches": 3},
            "failed",
            "FAILED",
            "All 3 fiches of automation run {id} failed.",
        ),
        ({"status": "failed", "error_message": "It broke off"}, "failed", "FAILED", "It broke off"),
    ],
)
def test_the_final_status_of_the_run_becomes_the_status_of_the_job(
    columns: dict[str, Any],
    status: str,
    code: str | None,
    error: str | None,
    runner: RemoteRunner,
    database: Database,
    clock: FakeClock,
) -> None:
    following = make_followed_run(runner, database, clock)
    end_run(following, database, selected_fiches=4, ignored_fiches=1, **columns)
    [(number, end)] = runner.find_ended({5: following}).items()
    run_id = following["automationRunId"]
    assert (number, end.status, end.error_code, end.error) == (
        5,
        status,
        code,
        error and error.format(id=run_id),
    )
    assert end.result == {
        "automationRunId": run_id,
        "status": columns["status"],
        "selected": 4,
        "successful": columns.get("successful_fiches", 0),
        "failed": columns.get("failed_fiches", 0),
        "ignored": 1,
    }


def test_a_run_cancelled_by_an_operator_cancels_the_job(
    runner: RemoteRunner, database: Database, clock: FakeClock
) -> None:
    following = make_followed_run(runner, database, clock)
    cancel_run(
        int(following["automationRunId"]), database=database, clock=clock, reason="wrong day"
    )
    end = runner.find_ended({1: following})[1]
    assert (end.status, end.error, end.error_code) == (
        "cancelled",
        "Cancelled by an operator: wrong day",
        None,
    )


def test_a_deleted_run_fails_the_job_as_not_found(runner: RemoteRunner) -> None:
    end = runner.find_ended({1: {"automationRunId": "99"}})[1]
    assert (end.status, end.error_code) == ("failed", "NOT_FOUND")


def test_a_cancelled_job_cancels_its_run_once(
    runner: RemoteRunner, database: Database, clock: FakeClock
) -> None:
    following = make_followed_run(runner, database, clock)
    assert runner.cancel(following, "user:12", "x" * 600) is False
    assert runner.cancel(following, "user:13") is False
    end = runner.find_ended({1: following})[1]
    assert (end.status, len(str(end.error)) <= 530) == ("cancelled", True)
    runner.cancel({"automationRunId": "99"}, "user:12")


def test_polling_many_runs_takes_as_many_queries_as_polling_one(
    runner: RemoteRunner, database: Database, clock: FakeClock
) -> None:
    followed = {number: make_followed_run(runner, database, clock) for number in range(4)}
    counts: list[int] = []
    for numbers in ([0], [0, 1, 2, 3]):
        seen: list[str] = []
        listener = lambda *given: seen.append(given[2])  # noqa: E731, B023  takes the arguments of the event
        event.listen(database.engine, "before_cursor_execute", listener)
        runner.find_ended({number: followed[number] for number in numbers})
        event.remove(database.engine, "before_cursor_execute", listener)
        counts.append(len(seen))
    assert counts[0] == counts[1]
