"""An installation whose steps are done by Celery workers: PostgreSQL, Redis, and each worker a family of processes."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import redis

from automation_pipeline_tests.e2e.system import BIN, System, kill_tree

STORAGE = "storage: {postgres: {postgres_url: {env: DAGSTER_POSTGRES_URL}}}\n"


def celery_system(room: Path, database_url: str, dagster_url: str, redis_url: str, crm: str, **more: str) -> System:
    """Dagster's own storage on PostgreSQL too. Of Redis it takes a database of its own, and finds it empty."""
    broker = f"{redis_url.rpartition('/')[0]}/9"
    redis.Redis.from_url(broker).flushdb()
    variables = {
        "AUTOMATION_EXECUTOR": "celery",
        "REDIS_URL": broker,
        "DAGSTER_POSTGRES_URL": dagster_url.replace("postgresql://", "postgresql+psycopg2://"),
        "AUTOMATION_HEARTBEAT_SECONDS": "0.5",
    }
    system = System(room, database_url, crm, **{**variables, **more})
    home = Path(system.environment["DAGSTER_HOME"]) / "dagster.yaml"
    home.write_text(home.read_text() + STORAGE)
    return system


@contextmanager
def worker(system: System, name: str, *words: str) -> Generator[psutil.Process]:
    """What it cannot do yet waits in the queue: nobody needs to wait for the worker."""
    command = [str(BIN / "automation"), "worker", "--name", f"{name}@%h", *words]
    with (system.room / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=system.environment, cwd=system.room, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        kill_tree(process.pid)
        process.wait()
