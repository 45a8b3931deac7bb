"""Runs the same `automation_run` on SQLite with several processes and on PostgreSQL, Redis and two
Celery workers, and compares the stored rows. It starts all servers, and exits with 1 if rows
differ.

python benchmarks/compare_executors.py [--fiches 2000] [--seed 7]
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from automation_pipeline import migrations  # noqa: E402  the repository is not always installed
from automation_pipeline.storage.database import Database  # noqa: E402
from automation_pipeline_tests.e2e.celery_workers import celery_system, worker  # noqa: E402
from automation_pipeline_tests.e2e.system import System  # noqa: E402
from automation_pipeline_tests.postgres import new_database  # noqa: E402
from automation_pipeline_tests.services import postgres_server, redis_server  # noqa: E402
from automation_pipeline_tests.simulator_control import LLM_KEY, reset, running_simulator  # noqa: E402
from benchmarks.stored import first_differences, stored_rows  # noqa: E402

YESTERDAY = {"mode": "date_range", "dateRange": "yesterday"}


def main() -> None:
    options = parse()
    world = ("--exact", "--fiches-per-day", str(options.fiches), "--seed", str(options.seed))
    with (
        running_simulator(*world) as crm,
        tempfile.TemporaryDirectory(prefix="same-rows-") as folder,
    ):
        providers = {
            "ELEVENLABS_BASE_URL": crm,
            "ELEVENLABS_API_KEY": "sim-speech-key",
            "LLM_BASE_URL": f"{crm}/v1",
            "LLM_API_KEY": LLM_KEY,
            "TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE": "100000",
            "LLM_RATE_LIMIT_PER_MINUTE": "1000000",
            "AUTOMATION_MAX_PROCESSES": "2",
        }
        with on_processes(Path(folder), crm, providers) as processes:
            here = measured("SQLite, multiprocess", processes, crm, options.fiches)
        with on_workers(Path(folder), crm, providers) as workers:
            there = measured("PostgreSQL, Redis, two Celery workers", workers, crm, options.fiches)
    differences = first_differences(here, there)
    print("\n".join(differences) or f"The same {sum(rows.total() for rows in here.values())} rows.")
    raise SystemExit(1 if differences else 0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fiches", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


@contextmanager
def on_processes(folder: Path, crm: str, providers: dict[str, str]) -> Iterator[System]:
    home = folder / "processes"
    home.mkdir()
    yield System(
        home,
        f"sqlite:///{home}/automation.db",
        crm,
        AUTOMATION_EXECUTOR="multiprocess",
        **providers,
    )


@contextmanager
def on_workers(folder: Path, crm: str, providers: dict[str, str]) -> Iterator[System]:
    home = folder / "workers"
    home.mkdir()
    with ExitStack() as services:
        postgres, redis = (
            services.enter_context(postgres_server()),
            services.enter_context(redis_server()),
        )
        ours, dagsters = (services.enter_context(new_database(postgres)) for _ in range(2))
        system = celery_system(home, ours, dagsters, redis, crm, **providers)
        for name in ("one", "two"):
            services.enter_context(worker(system, name, "--concurrency", "1"))
        yield system


def measured(name: str, system: System, crm: str, fiches: int) -> dict:
    """Execute the run and return its stored rows. Fails unless every fiche has an outcome."""
    reset(crm)
    database = Database(system.environment["DATABASE_URL"])
    migrations.upgrade(database)
    system.automation("audit-configs", "import", str(ROOT / "demo" / "audit_config.json"))
    schedule_id = system.create_schedule(
        (), ficheSelection=YESTERDAY, runTranscription=True, runAudits=True
    )
    started_at = time.monotonic()
    ended = system.execute_job(schedule_id)
    seconds = time.monotonic() - started_at
    if ended.returncode != 0:
        raise SystemExit(ended.stderr[-3000:])
    run = system.show_run("1")
    assert run["selectedFiches"] == fiches
    assert fiches == run["successfulFiches"] + run["failedFiches"] + run["ignoredFiches"]
    routes = httpx.get(f"{crm}/_sim/calls").raise_for_status().json()["routes"]
    calls = {route: result["calls"] for route, result in routes.items() if result["calls"]}
    print(f"{name}: {run['status']} in {seconds:.1f} s, calls {json.dumps(calls)}", flush=True)
    rows = stored_rows(database)
    database.dispose()
    return rows


if __name__ == "__main__":
    main()
