"""This version on the database of the one before it, as in the middle of a rolling upgrade: a whole automation runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from automation_pipeline import migrations
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.e2e.system import REPOSITORY, System
from automation_pipeline_tests.outside import LLM_KEY, simulator
from automation_pipeline_tests.postgres import new_database

BEFORE, NEWEST = migrations.revisions()[-2:]


@pytest.fixture
def outside_world() -> Iterator[str]:
    with simulator("--exact", "--fiches-per-day", "6") as url:
        yield url


@pytest.fixture
def older_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if database_kind == "sqlite":
        yield f"sqlite:///{tmp_path}/older.db"
        return
    with new_database(request.getfixturevalue("postgres_server")) as url:
        yield url


@pytest.fixture
def system(tmp_path: Path, older_url: str, outside_world: str) -> System:
    database = Database(older_url)
    migrations.upgrade(database, BEFORE)
    database.dispose()
    return System(
        tmp_path,
        older_url,
        outside_world,
        ELEVENLABS_BASE_URL=outside_world,
        ELEVENLABS_API_KEY="sim-speech-key",
        LLM_BASE_URL=f"{outside_world}/v1",
        LLM_API_KEY=LLM_KEY,
        TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE="6000",
        LLM_RATE_LIMIT_PER_MINUTE="1000000",
    )


def test_a_whole_automation_runs_on_the_schema_one_step_older(system: System) -> None:
    """Under the daemon, with all its sensors; and nothing is lost by the upgrade that follows."""
    system.automation("audit-configs", "import", str(REPOSITORY / "demo" / "audit_config.json"))
    yesterday = {"mode": "date_range", "dateRange": "yesterday"}
    schedule_id = system.create_schedule((), ficheSelection=yesterday, runTranscription=True, runAudits=True)
    with system.daemon():
        run = system.wait_for_end(system.run_now(schedule_id))
    assert run["status"] in {"completed", "partial"}
    assert run["selectedFiches"] == run["successfulFiches"] + run["failedFiches"] + run["ignoredFiches"] == 6
    assert run["auditsRun"] > 0
    [told] = [one for one in system.run("automation", "doctor").stdout.splitlines() if " database " in one]
    assert f"at {BEFORE}, one step before {NEWEST}" in told
    assert system.automation("housekeeping")["total"] == 0
    assert system.automation("db", "upgrade") == {"before": BEFORE, "revision": NEWEST}
    assert system.show_run("1")["status"] == run["status"]
