"""Servers that tests share. README.md describes how to write a test."""

import shutil
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date, timedelta
from itertools import count
from os import environ
from pathlib import Path

import pytest

from automation_pipeline.simulator import Fiche, World
from automation_pipeline_tests.e2e.system import BIN, REPOSITORY, Installation
from automation_pipeline_tests.postgres import new_database
from automation_pipeline_tests.simulator_control import running_simulator

FICHES_PER_DAY = 24
FIRST_DAY = date(2026, 2, 2)
FIVE_STEPS = Path(__file__).with_name("five_steps.json")
NewSystem = Callable[..., Installation]


@pytest.fixture(scope="session")
def provider() -> Generator[str]:
    """The shared simulator. It is never reset, so each fault names the item that it concerns."""
    with running_simulator(
        "--exact", "--fiches-per-day", str(FICHES_PER_DAY), "--latency", "0.01"
    ) as url:
        yield url


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite database, which tests copy."""
    folder = tmp_path_factory.mktemp("migrated")
    path = folder / "automation.db"
    upgrade(f"sqlite:///{path}", folder)
    return path


@contextmanager
def migrated_database(folder: Path, kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a migrated database for one test."""
    if kind == "sqlite":
        shutil.copy(request.getfixturevalue("migrated"), folder / "automation.db")
        yield f"sqlite:///{folder}/automation.db"
        return
    with new_database(request.getfixturevalue("postgres_server")) as url:
        upgrade(url, folder)
        yield url


@pytest.fixture(scope="module")
def installation(
    tmp_path_factory: pytest.TempPathFactory, provider: str, request: pytest.FixtureRequest
) -> Generator[Installation]:
    """A running daemon, code server and API with one automatic audit configuration of five steps. It
    ends with the module, because an idle one takes a seventh of a core."""
    folder = tmp_path_factory.mktemp("installation")
    with (
        migrated_database(folder, environ.get("DB", "sqlite"), request) as url,
        Installation(folder, url, provider).serving() as shared,
    ):
        shared.automation("audit-configs", "import", str(FIVE_STEPS))
        yield shared
        shared.close()


@pytest.fixture
def new_system(
    tmp_path: Path, provider: str, request: pytest.FixtureRequest
) -> Iterator[NewSystem]:
    """Creates an installation without processes for one test, which may disturb others."""
    created: list[Installation] = []
    with ExitStack() as databases:

        def make(*, kind: str | None = None, at: str = provider, **variables: str) -> Installation:
            folder = tmp_path / f"system-{len(created)}"
            folder.mkdir()
            database = migrated_database(folder, kind or environ.get("DB", "sqlite"), request)
            created.append(Installation(folder, databases.enter_context(database), at, **variables))
            return created[-1]

        yield make
        for system in created:
            system.close()


@pytest.fixture(scope="session")
def days() -> Iterator[date]:
    """Days that no other test of this worker uses."""
    return (FIRST_DAY + timedelta(days=number) for number in count())


@pytest.fixture
def day(days: Iterator[date]) -> date:
    return next(days)


@pytest.fixture
def fiches(day: date) -> tuple[Fiche, ...]:
    """All fiches of a day that only this test uses. Most are ordinary; the simulator's `Kind` lists
    the others."""
    return World(7, FICHES_PER_DAY, vary=False).day(day)


def upgrade(database_url: str, folder: Path) -> None:
    home = folder / "migrating"
    home.mkdir()
    (home / "dagster.yaml").write_text((REPOSITORY / "dagster.yaml").read_text())
    environment = {**environ, "DATABASE_URL": database_url, "DAGSTER_HOME": str(home)}
    subprocess.run(
        [str(BIN / "automation"), "db", "upgrade"], env=environment, check=True, capture_output=True
    )
