"""The heartbeat is updated while the step works, and its failure never ends the step."""

import pytest
from sqlalchemy import select, text

from automation_pipeline.automation.runs import open_run, send_heartbeat
from automation_pipeline.automation.tables import HeartbeatRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.executor import beating, repeating
from automation_pipeline.orchestration.ops import worker_name
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.factories import make_launch, make_open_run
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.waiting import wait_until


def services_on(database_url: str) -> Services:
    return Services(Settings(database_url=database_url, automation_heartbeat_seconds=0.05))


def test_the_heartbeat_is_updated_while_the_step_works(
    database: Database, database_url: str, clock: FakeClock
) -> None:
    ticket = make_open_run(database, clock)

    def beat() -> object:
        with database.reading() as session:
            return session.execute(select(HeartbeatRow.beat_at, HeartbeatRow.worker)).one()

    with beating(ticket, services_on(database_url)):
        wait_until(lambda: beat()[1] == worker_name())  # type: ignore[index]
        first = beat()
        wait_until(lambda: beat() != first)


def test_an_older_attempt_does_not_update_the_heartbeat_of_a_newer_one(
    database: Database, clock: FakeClock
) -> None:
    first = make_open_run(database, clock)
    second = open_run(
        make_launch(1, "d-2", dagster_root_run_id="dagster-1"), database=database, clock=clock
    )
    send_heartbeat(first, "old:1", database=database)
    with database.reading() as session:
        row = session.scalars(select(HeartbeatRow)).one()
    assert (row.attempt, row.worker) == (second.attempt, "host:1")


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_failed_heartbeat_does_not_end_the_step(
    database: Database, database_url: str, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    ticket = make_open_run(database, clock)
    with database.transaction() as session:
        session.execute(text("DROP TABLE automation_run_heartbeats"))
    with beating(ticket, services_on(database_url)):
        wait_until(lambda: "No heartbeat" in caplog.text)


def test_a_persistent_heartbeat_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = iter(["down", "down", "busy", "busy"])
    attempts: list[str] = []

    def act() -> None:
        attempts.append(next(failures, "busy"))
        raise OSError(attempts[-1])

    with repeating(act, 0.01, "No heartbeat"):
        wait_until(lambda: len(attempts) > 5)
    assert [record.getMessage() for record in caplog.records] == [
        "No heartbeat: down",
        "No heartbeat: busy",
    ]
