"""A whole run by `dagster job execute`: yesterday's sales selected, fetched, transcribed, audited, reported."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from automation_pipeline_tests.e2e.system import REPOSITORY, System
from automation_pipeline_tests.outside import LLM_KEY, simulator


@pytest.fixture
def outside_world() -> Iterator[str]:
    with simulator("--exact", "--fiches-per-day", "12") as url:
        yield url


@pytest.fixture
def system(tmp_path: Path, database_url: str, outside_world: str) -> System:
    return System(
        tmp_path,
        database_url,
        outside_world,
        ELEVENLABS_BASE_URL=outside_world,
        ELEVENLABS_API_KEY="sim-speech-key",
        LLM_BASE_URL=f"{outside_world}/v1",
        LLM_API_KEY=LLM_KEY,
        TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE="6000",
        LLM_RATE_LIMIT_PER_MINUTE="1000000",
    )


def answered(url: str) -> dict[str, int]:
    return httpx.get(f"{url}/_sim/llm").raise_for_status().json()["items"]


@pytest.mark.parametrize(
    ("executor", "database_kind"), [("in_process", "sqlite"), ("multiprocess", "postgres")], indirect=["database_kind"]
)
def test_yesterdays_sales_are_audited_and_the_repeat_asks_no_step_twice(
    executor: str, system: System, outside_world: str
) -> None:
    system.environment["AUTOMATION_EXECUTOR"] = executor
    system.automation("audit-configs", "import", str(REPOSITORY / "demo" / "audit_config.json"))
    yesterday = {"mode": "date_range", "dateRange": "yesterday"}
    schedule_id = system.create_schedule((), ficheSelection=yesterday, runTranscription=True, runAudits=True)
    ended = system.execute_job(schedule_id)
    assert ended.returncode == 0, ended.stderr[-2000:]

    run = system.show_run("1")
    assert run["status"] in {"completed", "partial"}
    assert run["selectedFiches"] == run["successfulFiches"] + run["failedFiches"] + run["ignoredFiches"] == 12
    audited = [fiche for fiche in run["fiches"] if fiche["status"] == "successful" and fiche["recordingsCount"]]
    assert run["auditsRun"] == len(audited) > 0
    assert set(answered(outside_world).values()) == {1}
    for made in ("sales_list", "fiche_details", "transcripts", "audit_outcomes"):
        assert f"ASSET_MATERIALIZATION - Materialized value {made}" in ended.stderr
