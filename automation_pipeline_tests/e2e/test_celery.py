"""Steps done by Celery workers: the same rows as in one process, caps that hold over workers, and kill -9."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import or_, select

from automation_pipeline.automation.tables import FicheResultRow
from automation_pipeline.simulator import Kind, World
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.step_beats import RUN_WORKER, StepBeat, beats
from automation_pipeline_tests.e2e.celery_workers import celery_system, worker
from automation_pipeline_tests.e2e.stored import first_differences, stored_rows
from automation_pipeline_tests.e2e.system import PATIENCE, REPOSITORY, System, kill, kill_tree
from automation_pipeline_tests.e2e.test_survival import TERMINATE
from automation_pipeline_tests.outside import LLM_KEY, forget, simulator
from automation_pipeline_tests.postgres import new_database
from automation_pipeline_tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
YESTERDAY = {"mode": "date_range", "dateRange": "yesterday"}
FICHES, MODEL_CALLS = 54, 4
IDS = [each.id for each in World(7, 120, vary=False).day(date(2026, 2, 4)) if each.kind is not Kind.MISSING][:100]


@pytest.fixture
def outside_world() -> Iterator[str]:
    with simulator("--exact", "--fiches-per-day", str(FICHES)) as url:
        yield url


@pytest.fixture
def slow_world() -> Iterator[str]:
    with simulator("--exact", "--fiches-per-day", "120", "--latency", "0.1") as url:
        yield url


@pytest.fixture
def dagster_url(postgres_server: str) -> Iterator[str]:
    with new_database(postgres_server) as url:
        yield url


@pytest.fixture
def slow_system(tmp_path: Path, database_url: str, dagster_url: str, redis_url: str, slow_world: str) -> System:
    return celery_system(tmp_path, database_url, dagster_url, redis_url, slow_world, FICHE_FETCH_CONCURRENCY="3")


@pytest.fixture
def two_workers(slow_system: System) -> Iterator[list[psutil.Process]]:
    with ExitStack() as workers:
        yield [workers.enter_context(worker(slow_system, name, "--concurrency", "1")) for name in ("one", "two")]


def a_whole_run(system: System) -> dict:
    system.automation("audit-configs", "import", str(REPOSITORY / "demo" / "audit_config.json"))
    whole = {"ficheSelection": YESTERDAY, "runTranscription": True, "runAudits": True}
    ended = system.execute_job(system.create_schedule((), **whole))
    assert ended.returncode == 0, ended.stderr[-3000:]
    return system.show_run("1")


def test_two_workers_leave_the_same_rows_as_one_process_under_the_same_caps(
    tmp_path: Path, database_url: str, database: Database, sqlite_template: Path,
    dagster_url: str, redis_url: str, outside_world: str,
) -> None:  # fmt: skip
    providers = {
        "ELEVENLABS_BASE_URL": outside_world,
        "ELEVENLABS_API_KEY": "sim-speech-key",
        "LLM_BASE_URL": f"{outside_world}/v1",
        "LLM_API_KEY": LLM_KEY,
        "TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE": "6000",
        "LLM_RATE_LIMIT_PER_MINUTE": "1000000",
        "LLM_MAX_CONCURRENCY": str(MODEL_CALLS),
    }
    room = tmp_path / "alone"
    room.mkdir()
    (room / "test.db").write_bytes(sqlite_template.read_bytes())
    alone = System(room, f"sqlite:///{room}/test.db", outside_world, **providers)
    a_whole_run(alone)
    forget(outside_world)
    system = celery_system(tmp_path, database_url, dagster_url, redis_url, outside_world, **providers)
    with worker(system, "one"), worker(system, "two"):
        assert a_whole_run(system)["selectedFiches"] == FICHES
    in_one_process = Database(alone.environment["DATABASE_URL"])
    assert first_differences(stored_rows(in_one_process), stored_rows(database)) == []
    in_one_process.dispose()
    routes = httpx.get(f"{outside_world}/_sim/calls").raise_for_status().json()["routes"]
    assert routes["llm.complete"]["in_flight_max"] <= MODEL_CALLS
    assert set(routes["speech.transcribe"]["items"].values()) == {1}
    assert steps_at_work(database) == []


def fetched_fiches(database: Database) -> set[str]:
    with database.reading() as session:
        fetched = or_(FicheResultRow.status != "pending", FicheResultRow.stage == "fetched")
        return set(session.scalars(select(FicheResultRow.fiche_id).where(fetched)))


def steps_at_work(database: Database) -> list[StepBeat]:
    with database.reading() as session:
        return [beat for beat in beats(session) if beat.step_key != RUN_WORKER]


def both_at_work(database: Database) -> bool:
    return len(fetched_fiches(database)) >= 20 and len({beat.worker for beat in steps_at_work(database)}) == 2


def assert_whole(system: System, run: dict, ended_at_the_kill: set[str]) -> None:
    assert run["status"] == "completed"
    assert [fiche["ficheId"] for fiche in run["fiches"]] == IDS
    assert run["selectedFiches"] == run["successfulFiches"] == len(IDS)
    calls = system.calls_per_fiche()
    assert {fiche_id for fiche_id in ended_at_the_kill if calls[fiche_id] != 1} == set()


def test_a_lost_worker_is_noticed_beside_a_living_one(
    slow_system: System, two_workers: list[psutil.Process], database: Database
) -> None:
    slow_system.environment["AUTOMATION_LOST_AFTER_SECONDS"] = "15"
    with slow_system.daemon():
        run_id = slow_system.run_now(slow_system.create_schedule(IDS))
        wait_until(lambda: both_at_work(database), PATIENCE)
        kill_tree(two_workers[0].pid)
        ended = fetched_fiches(database)
        run = slow_system.wait_for_end(run_id)
    assert run["attempt"] > 1
    assert_whole(slow_system, run, ended)


def test_a_step_whose_process_is_killed_comes_to_another_one(
    slow_system: System, two_workers: list[psutil.Process], database: Database
) -> None:
    with slow_system.daemon():
        run_id = slow_system.run_now(slow_system.create_schedule(IDS))
        wait_until(lambda: both_at_work(database), PATIENCE)
        kill(int(steps_at_work(database)[0].worker.rpartition(":")[2]))
        ended = fetched_fiches(database)
        run = slow_system.wait_for_end(run_id)
    assert run["attempt"] == 1
    assert_whole(slow_system, run, ended)


def test_a_run_that_is_terminated_in_dagster_stops_its_steps_on_every_worker(
    slow_system: System, two_workers: list[psutil.Process], database: Database
) -> None:
    with slow_system.daemon():
        run_id = slow_system.run_now(slow_system.create_schedule(IDS))
        wait_until(lambda: both_at_work(database), PATIENCE)
        # What is left takes longer than the termination.
        httpx.post(f"{slow_system.crm_url}/_sim/latency", json={"seconds": 20}).raise_for_status()
        dagster_run_id = slow_system.show_run(run_id)["dagsterRunId"]
        terminated = slow_system.run(sys.executable, "-c", TERMINATE, dagster_run_id)
        assert terminated.returncode == 0, terminated.stderr
        run = slow_system.wait_for_end(run_id)
        wait_until(lambda: steps_at_work(database) == [], PATIENCE)
    assert (run["status"], run["errorMessage"]) == ("failed", "The run was terminated in Dagster")
    assert run["selectedFiches"] == run["successfulFiches"] + run["failedFiches"] == len(IDS)
    assert run["failedFiches"] > 0
