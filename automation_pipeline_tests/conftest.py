"""Fixtures of the whole suite: a migrated database per test, on SQLite or PostgreSQL; a fake clock; the
simulator."""

import asyncio
import gc
import logging
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from sqlalchemy import URL, Dialect, Engine, event

from automation_pipeline import migrations
from automation_pipeline.automation import transcribing as transcribe_targets
from automation_pipeline.storage import database as database_module
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription import recordings as transcribe_waiting
from automation_pipeline_tests import postgres, services, simulator_control
from automation_pipeline_tests.fakes.clock import FakeClock

# Without garbage collection, pytest collects the tests in two thirds of the time.
# `pytest_collection_finish` enables it again.
gc.disable()

# A slow machine does not fail a test, and every run of the suite uses the same examples.
# `--hypothesis-profile default` generates new ones.
settings.register_profile(
    "suite",
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


# Tests use the same event loop as the application.
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def pytest_configure() -> None:
    """Restore the default handler of SIGINT. A background job of a script inherits an ignored SIGINT
    and passes it on to Dagster's servers, which then ignore SIGTERM too and never end."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# A test with one of these fixtures uses a database.
DATABASE_FIXTURES = {"database_kind", "sqlite_template", "terminal"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if "/e2e/" in item.nodeid:
            item.add_marker("e2e")
            item.add_marker(pytest.mark.timeout(600))
        if DATABASE_FIXTURES & fixtures:
            item.add_marker("stored")
        callspec = getattr(item, "callspec", None)
        parameters = callspec.params if callspec else {}
        uses_server = bool(fixtures & {"postgres_server", "redis_url"})
        if uses_server or parameters.get("database_kind") == "postgres":
            item.add_marker("services")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests of queries, storage and migrations on both databases, because they can differ there.
    All other tests run on SQLite, or on the database that the environment variable DB names."""
    is_chosen = any(
        "database_kind" in mark.args[0]
        for mark in metafunc.definition.iter_markers("parametrize")
        if mark.args
    )
    if "database_kind" not in metafunc.fixturenames or is_chosen:
        return
    path = metafunc.definition.path
    marked = metafunc.definition.get_closest_marker("both_databases") is not None
    on_both = marked or bool({"queries", "storage", "migrations"} & set(path.parts))
    kinds = ["sqlite", "postgres"] if on_both else [os.environ.get("DB", "sqlite")]
    metafunc.parametrize("database_kind", kinds, indirect=True)


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    """Undo what a test did to the package's logger: loading the definitions, for example, adds a
    handler for standard error."""
    yield
    logger = logging.getLogger("automation_pipeline")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)


def pytest_collection_finish() -> None:
    """Exempt the collected tests and imported modules from garbage collection: they stay until the
    end."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 5, 4, 10, 0, tzinfo=UTC))


@pytest.fixture(scope="session", autouse=True)
def short_poll_intervals() -> Iterator[None]:
    """Poll more often for recordings and fiches, because fakes provide them at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transcribe_waiting, "POLL_SECONDS", 0.02)
        patch.setattr(transcribe_targets, "FIRST_PAUSE_SECONDS", 0.02)
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_statement_cache() -> Iterator[None]:
    """Compile each statement once per worker instead of once per test: engines of the same kind share
    their dialect, which is a part of the cache's key."""
    cache: dict[object, object] = {}
    connected: dict[str, Dialect] = {}
    create = database_module.engine_of

    def engine_of(url: URL, limits: database_module.ServerLimits | None = None) -> Engine:
        engine = create(url, limits)
        engine.update_execution_options(compiled_cache=cache)
        kind = url.get_backend_name()
        if kind in connected:
            engine.dialect = connected[kind]
        else:
            # The first connection completes a dialect.
            event.listen(
                engine,
                "engine_connect",
                lambda connection: connected.setdefault(kind, connection.dialect),
            )
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database_module, "engine_of", engine_of)
        yield


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
def postgres_database(postgres_server: str) -> Iterator[postgres.ReusableDatabase]:
    with postgres.reusable_database(postgres_server) as reusable:
        yield reusable


@pytest.fixture
def database_kind(request: pytest.FixtureRequest) -> str:
    """`sqlite` or `postgres`, as `pytest_generate_tests` chooses."""
    return request.param


@pytest.fixture
def database_url(
    database_kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[str]:
    if database_kind == "sqlite":
        copy = shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "test.db")
        yield f"sqlite:///{copy}"
        return
    yield request.getfixturevalue("postgres_database").reset()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.dispose()


@pytest.fixture(scope="session")
def shared_simulator_url() -> Iterator[str]:
    """One simulator per pytest worker, with the calls and faults that the last test left. Most tests
    use `simulator_url`."""
    with simulator_control.running_simulator("--seed", "7", "--exact") as url:
        yield url


@pytest.fixture
def simulator_url(shared_simulator_url: str) -> str:
    """The simulator without recorded calls, faults and latency."""
    simulator_control.reset(shared_simulator_url)
    return shared_simulator_url
