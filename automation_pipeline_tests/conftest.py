"""Fixtures of the whole suite: a fresh, migrated database a test, on SQLite and PostgreSQL; a clock
that stands."""

import asyncio
import gc
import logging
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from automation_pipeline import migrations
from automation_pipeline.automation import transcribing as transcribe_targets
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription import recordings as transcribe_waiting
from automation_pipeline_tests import outside, postgres, services

# A machine that is slow for a moment is no finding; and whoever runs the suite meets the examples
# that all others did. `--hypothesis-profile default` looks for new ones.
settings.register_profile(
    "suite",
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


# `asyncio.run` in tests uses the event loop of the product.
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def pytest_configure() -> None:
    """As from a terminal. Who starts the suite in the background of a script may have SIGINT
    ignored, and hand that on: then Dagster's servers ignore SIGTERM too, and never end."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# What gives a test a database.
STORED = {"database_kind", "sqlite_template", "terminal"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/e2e/" in item.nodeid:
            item.add_marker("e2e")
            item.add_marker(pytest.mark.timeout(600))
        if STORED & set(getattr(item, "fixturenames", ())):
            item.add_marker("stored")
        chosen = (
            item.callspec.params
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else {}
        )
        asked = set(getattr(item, "fixturenames", ())) & {"postgres_server", "redis_url"}
        if asked or chosen.get("database_kind") == "postgres":
            item.add_marker("services")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Queries, claims and migrations run on both databases, because that is where the two differ.
    Every other test runs on SQLite, or on the one that the environment variable DB names."""
    chosen_by_the_test = any(
        "database_kind" in mark.args[0]
        for mark in metafunc.definition.iter_markers("parametrize")
        if mark.args
    )
    if "database_kind" not in metafunc.fixturenames or chosen_by_the_test:
        return
    path = metafunc.definition.path
    marked = metafunc.definition.get_closest_marker("both_databases") is not None
    on_both = marked or bool({"queries", "storage", "migrations"} & set(path.parts))
    kinds = ["sqlite", "postgres"] if on_both else [os.environ.get("DB", "sqlite")]
    metafunc.parametrize("database_kind", kinds, indirect=True)


@pytest.fixture(autouse=True)
def _lines_of_ours_go_nowhere() -> Iterator[None]:
    """Loading the definitions sends our lines to standard error: what a test did to them is
    undone."""
    yield
    ours = logging.getLogger("automation_pipeline")
    ours.handlers.clear()
    ours.setLevel(logging.NOTSET)


def pytest_collection_finish() -> None:
    """Six thousand tests and all that they import stay: the collector need not look at them again
    and again."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture(scope="session", autouse=True)
def impatience() -> Iterator[None]:
    """Whoever waits for a recording or a fiche looks for it more often: what is looked for comes at
    once here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transcribe_waiting, "POLL_SECONDS", 0.02)
        patch.setattr(transcribe_targets, "FIRST_PAUSE_SECONDS", 0.02)
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
def postgres_room(postgres_server: str) -> Iterator[postgres.Room]:
    with postgres.room(postgres_server) as room:
        yield room


@pytest.fixture
def database_kind(request: pytest.FixtureRequest) -> str:
    """The database of this test; `pytest_generate_tests` chooses it."""
    return request.param


@pytest.fixture
def database_url(
    database_kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[str]:
    if database_kind == "sqlite":
        copy = shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "test.db")
        yield f"sqlite:///{copy}"
        return
    yield request.getfixturevalue("postgres_room").tidy()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.dispose()


@pytest.fixture(scope="session")
def simulator_url() -> Iterator[str]:
    """One a worker; its ledger and faults are whatever the last test left: most tests want
    `simulated`."""
    with outside.simulator("--seed", "7", "--exact") as url:
        yield url


@pytest.fixture
def simulated(simulator_url: str) -> str:
    """The simulator as if just started."""
    outside.forget(simulator_url)
    return simulator_url
