"""What is deleted is never confused with what comes after it: ids, audits and events of each run are its own."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from automation_pipeline.simulator import World
from automation_pipeline.simulator.speech.conversation import conversation
from automation_pipeline_tests.e2e.system import System
from automation_pipeline_tests.outside import LLM_KEY, simulator

FIVE_STEPS = Path(__file__).parent / "five_steps.json"
DAY = World(7, 20, vary=False).day(date(2026, 2, 3))
SPOKEN = [
    fiche.id for fiche in DAY if any(call.has_url and conversation(fiche, call).words for call in fiche.recordings)
]


@pytest.fixture
def system(tmp_path: Path, sqlite_template: Path) -> Iterator[System]:
    (tmp_path / "own.db").write_bytes(sqlite_template.read_bytes())
    with simulator("--exact", "--fiches-per-day", "20") as url:
        variables = {
            "ELEVENLABS_BASE_URL": url,
            "ELEVENLABS_API_KEY": "sim-speech-key",
            "TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE": "6000",
            "LLM_BASE_URL": f"{url}/v1",
            "LLM_API_KEY": LLM_KEY,
            "LLM_RATE_LIMIT_PER_MINUTE": "1000000",
        }
        yield System(tmp_path, f"sqlite:///{tmp_path}/own.db", url, **variables)


def event_names(system: System, run_id: str) -> set[str]:
    with closing(sqlite3.connect(system.room / "own.db")) as connection:
        query = "SELECT event_name FROM events_outbox WHERE correlation_id = ?"
        return {name for (name,) in connection.execute(query, (f"automation-run-{run_id}",))}


def test_a_schedule_after_a_deleted_one_has_runs_audits_and_events_of_its_own(system: System) -> None:
    system.automation("audit-configs", "import", str(FIVE_STEPS))
    runs = []
    for _schedule in range(2):
        schedule_id = system.create_schedule(SPOKEN[:1], runTranscription=True, runAudits=True)
        ended = system.execute_job(schedule_id)
        assert ended.returncode == 0, ended.stderr[-2000:]
        run_id = str(system.automation("runs", "list")["runs"][0]["id"])
        runs.append(system.show_run(run_id))
        system.automation("schedules", "delete", schedule_id, "--yes")
    first, second = runs
    assert first["id"] != second["id"]
    assert first["scheduleId"] != second["scheduleId"]
    assert first["auditsRun"] == second["auditsRun"] == 1
    assert event_names(system, first["id"]) == event_names(system, second["id"])
    assert "automation.run.completed" in event_names(system, second["id"])

    assert system.automation("schedules", "list", "--include-inactive")["schedules"] == []
    assert system.show_run(first["id"])["fiches"] == first["fiches"]
    refused = system.run("automation", "schedules", "run-now", first["scheduleId"])
    assert (refused.returncode, f"Schedule {first['scheduleId']} not found" in refused.stderr) == (1, True)
