"""An installation with Celery workers on PostgreSQL and Redis."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil
import redis

from automation_pipeline_tests.e2e.system import BIN, System

STORAGE = "storage: {postgres: {postgres_url: {env: DAGSTER_POSTGRES_URL}}}\n"
AnySystem = TypeVar("AnySystem", bound=System)


def use_celery(system: AnySystem, dagster_url: str, redis_url: str) -> AnySystem:
    """Dagster's storage moves to PostgreSQL too. The system gets its own Redis database, emptied
    first."""
    broker = f"{redis_url.rpartition('/')[0]}/9"
    redis.Redis.from_url(broker).flushdb()
    system.environment |= {
        "AUTOMATION_EXECUTOR": "celery",
        "REDIS_URL": broker,
        "DAGSTER_POSTGRES_URL": dagster_url.replace("postgresql://", "postgresql+psycopg2://"),
    }
    system.configure_dagster(STORAGE)
    return system


def celery_system(
    folder: Path,
    database_url: str,
    dagster_url: str,
    redis_url: str,
    provider: str,
    **variables: str,
) -> System:
    return use_celery(System(folder, database_url, provider, **variables), dagster_url, redis_url)


@contextmanager
def worker(system: System, name: str, *words: str) -> Generator[psutil.Process]:
    """Does not wait until the worker is ready, because steps wait in the queue."""
    command = [str(BIN / "automation"), "worker", "--name", f"{name}@%h", *words]
    with system.running(*command, log=f"{name}.log") as process:
        yield psutil.Process(process.pid)
