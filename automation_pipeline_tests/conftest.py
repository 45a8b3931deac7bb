"""Fixtures of the whole suite: a fresh, migrated database a test, on SQLite and PostgreSQL; a clock that stands."""

import logging
import shutil
import uuid
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from automation_pipeline import migrations
from automation_pipeline.storage.database import Database
from automation_pipeline_tests import outside, services


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/e2e/" in item.nodeid:
            item.add_marker("e2e")
        chosen = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        asked = set(getattr(item, "fixturenames", ())) & {"postgres_server", "redis_url"}
        if asked or chosen.get("database_kind") == "postgres":
            item.add_marker("services")


@pytest.fixture(autouse=True)
def _lines_of_ours_go_nowhere() -> Iterator[None]:
    """Loading the definitions sends our lines to standard error: what a test did to them is undone."""
    yield
    ours = logging.getLogger("automation_pipeline")
    ours.handlers.clear()
    ours.setLevel(logging.NOTSET)


class StandingClock:
    """Time as the test says it."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def pass_time(self, length: timedelta) -> None:
        self._now += length

    def pass_time_a_second(self) -> None:
        self.pass_time(timedelta(seconds=1))


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock(datetime(2026, 5, 4, 10, 0, tzinfo=UTC))


@pytest.fixture(scope="session")
def postgres_server() -> Generator[str]:
    with services.postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Generator[str]:
    with services.redis_server() as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "migrated.db"
    database = Database(f"sqlite:///{path}")
    migrations.upgrade(database)
    database.dispose()
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> Generator[str]:
    with new_postgres_database(postgres_server) as url:
        database = Database(url)
        migrations.upgrade(database)
        database.dispose()
        yield url


def new_postgres_database(server: str, template: str = "template1") -> "_NewDatabase":
    return _NewDatabase(server, template)


class _NewDatabase:
    """A database of its own, dropped at the end."""

    def __init__(self, server: str, template: str) -> None:
        self._server, self._template = server, template
        self._name = f"test_{uuid.uuid4().hex}"

    def __enter__(self) -> str:
        self._run("CREATE DATABASE {} TEMPLATE {}", self._name, self._template)
        url = make_url(self._server).set(drivername="postgresql", database=self._name)
        return url.render_as_string(hide_password=False)

    def __exit__(self, *_error: object) -> None:
        self._run("DROP DATABASE {} WITH (FORCE)", self._name)

    def _run(self, statement: str, *names: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@pytest.fixture(params=["sqlite", "postgres"])
def database_kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def database_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if database_kind == "sqlite":
        copy = shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "test.db")
        yield f"sqlite:///{copy}"
        return
    server = request.getfixturevalue("postgres_server")
    template = make_url(request.getfixturevalue("postgres_template")).database
    with new_postgres_database(server, template or "template1") as url:
        yield url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.dispose()


@pytest.fixture(scope="session")
def simulator_url() -> Iterator[str]:
    """One a worker; its ledger and faults are whatever the last test left: most tests want `simulated`."""
    with outside.simulator("--seed", "7", "--exact") as url:
        yield url


@pytest.fixture
def simulated(simulator_url: str) -> str:
    """The simulator as if just started."""
    outside.forget(simulator_url)
    return simulator_url
