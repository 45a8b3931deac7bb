"""kill -9 in the middle of a run, under Dagster's own daemon: the ledger is finished, nothing finished is repeated."""

import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import or_, select

from automation_pipeline.automation.tables import FicheResultRow, HeartbeatRow
from automation_pipeline.simulator import Kind, World
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.e2e.system import PATIENCE, System, kill, kill_tree
from automation_pipeline_tests.outside import simulator
from automation_pipeline_tests.survival.progress import run_worker_of
from automation_pipeline_tests.waiting import wait_until

DAY = [fiche for fiche in World(7, 400, vary=False).day(date(2026, 2, 4)) if fiche.kind is not Kind.MISSING]
IDS = [fiche.id for fiche in DAY][:240]
CONCURRENCY = 6


@pytest.fixture
def slow_system(tmp_path: Path, database: Database, database_url: str, slow_simulator: str) -> System:
    return System(
        tmp_path,
        database_url,
        slow_simulator,
        FICHE_FETCH_CONCURRENCY=str(CONCURRENCY),
        AUTOMATION_HEARTBEAT_SECONDS="0.5",
    )


@pytest.fixture
def slow_simulator() -> Iterator[str]:
    with simulator("--exact", "--fiches-per-day", "400", "--latency", "0.1") as url:
        yield url


def fetched_fiches(database: Database) -> set[str]:
    with database.reading() as session:
        fetched = or_(FicheResultRow.status != "pending", FicheResultRow.stage == "fetched")
        return set(session.scalars(select(FicheResultRow.fiche_id).where(fetched)))


def working_process(database: Database) -> psutil.Process:
    """The process that beats for the run: the step's, or the run worker's when steps run inside it."""
    with database.reading() as session:
        worker = session.scalars(select(HeartbeatRow.worker)).one()
    return psutil.Process(int(worker.rpartition(":")[2]))


def assert_whole(system: System, run: dict, ended_at_the_kill: set[str]) -> None:
    assert run["status"] == "completed"
    assert [fiche["ficheId"] for fiche in run["fiches"]] == IDS
    assert {fiche["status"] for fiche in run["fiches"]} == {"successful"}
    assert run["selectedFiches"] == run["successfulFiches"] == len(IDS)
    calls = system.calls_per_fiche()
    assert {fiche_id for fiche_id in ended_at_the_kill if calls[fiche_id] != 1} == set()


@pytest.mark.parametrize(
    ("executor", "database_kind"),
    [("in_process", "sqlite"), ("multiprocess", "postgres")],
    indirect=["database_kind"],
)
def test_a_killed_run_worker_is_retried_and_the_ledger_is_finished(
    executor: str, slow_system: System, database: Database
) -> None:
    slow_system.environment["AUTOMATION_EXECUTOR"] = executor
    with slow_system.daemon():
        run_id = slow_system.run_now(slow_system.create_schedule(IDS))
        wait_until(lambda: len(fetched_fiches(database)) >= 20, PATIENCE)
        kill(run_worker_of(working_process(database)).pid)
        ended = fetched_fiches(database)
        run = slow_system.wait_for_end(run_id)
    assert run["attempt"] == 2
    assert_whole(slow_system, run, ended)


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_killed_step_process_is_tried_again_within_the_run(slow_system: System, database: Database) -> None:
    slow_system.environment["AUTOMATION_EXECUTOR"] = "multiprocess"
    with slow_system.daemon():
        run_id = slow_system.run_now(slow_system.create_schedule(IDS))
        wait_until(lambda: len(fetched_fiches(database)) >= 20, PATIENCE)
        kill(working_process(database).pid)
        ended = fetched_fiches(database)
        run = slow_system.wait_for_end(run_id)
    assert run["attempt"] == 1
    assert_whole(slow_system, run, ended)


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_lost_host_is_noticed_by_its_silence(slow_system: System, database: Database) -> None:
    slow_system.environment["AUTOMATION_LOST_AFTER_SECONDS"] = "8"
    with slow_system.daemon() as daemon:
        run_id = slow_system.run_now(slow_system.create_schedule(IDS))
        wait_until(lambda: len(fetched_fiches(database)) >= 20, PATIENCE)
        worker = run_worker_of(working_process(database))
        kill_tree(daemon.pid)
        kill_tree(worker.pid)
        ended = fetched_fiches(database)
    with slow_system.daemon():
        run = slow_system.wait_for_end(run_id)
    assert run["attempt"] == 2
    assert_whole(slow_system, run, ended)


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_run_whose_schedule_went_away_is_closed_with_the_reason(slow_system: System, database: Database) -> None:
    schedule_id = slow_system.create_schedule(IDS)
    run_id = slow_system.run_now(schedule_id)
    with database.transaction() as session:
        session.connection().exec_driver_sql("UPDATE automation_schedules SET is_active = false")
    with slow_system.daemon():
        run = slow_system.wait_for_end(run_id)
    assert run["status"] == "failed"
    assert run["errorMessage"] == f"Schedule {schedule_id} is not active"


TERMINATE = """
import sys
from dagster import DagsterInstance
with DagsterInstance.get() as instance:
    run = instance.get_run_by_id(sys.argv[1])
    instance.report_run_canceling(run)
    instance.run_launcher.terminate(run.run_id)
"""


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_run_that_is_terminated_in_dagster_stops_and_is_closed(slow_system: System, database: Database) -> None:
    with slow_system.daemon():
        run_id = slow_system.run_now(slow_system.create_schedule(IDS))
        wait_until(lambda: len(fetched_fiches(database)) >= 20, PATIENCE)
        # What is left takes longer than the termination.
        httpx.post(f"{slow_system.crm_url}/_sim/latency", json={"seconds": 3}).raise_for_status()
        terminated = slow_system.run(sys.executable, "-c", TERMINATE, slow_system.show_run(run_id)["dagsterRunId"])
        assert terminated.returncode == 0, terminated.stderr
        run = slow_system.wait_for_end(run_id)
    assert (run["status"], run["errorMessage"]) == ("failed", "The run was terminated in Dagster")
    assert [fiche["ficheId"] for fiche in run["fiches"]] == IDS
    assert run["failedFiches"] > 0
    assert run["selectedFiches"] == run["successfulFiches"] + run["failedFiches"]
    assert max(slow_system.calls_per_fiche().values()) == 1


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_job_that_fails_without_a_daemon_closes_its_run_with_the_reason(slow_system: System) -> None:
    schedule_id = slow_system.create_schedule(IDS)
    del slow_system.environment["FICHE_API_BASE_URL"]
    assert slow_system.execute_job(schedule_id).returncode == 1
    run = slow_system.show_run("1")
    assert run["status"] == "failed"
    assert run["errorMessage"] == "FICHE_API_BASE_URL is not set: it is the address of the CRM gateway."
