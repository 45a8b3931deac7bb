"""Whole runs, killed again and again at any moment: each ends by itself, one row a fiche, and finished work is not
asked for again. `KILLS=30` makes it as many as that."""

import os
import random
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import func, select

from automation_pipeline.audits.tables import AuditRow, StepResultRow
from automation_pipeline.automation.tables import HeartbeatRow
from automation_pipeline.fiches.tables import FicheCache, RecordingRow
from automation_pipeline.simulator import Kind, World
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.e2e.system import PATIENCE, REPOSITORY, System, kill
from automation_pipeline_tests.e2e.test_survival import run_worker
from automation_pipeline_tests.outside import LLM_KEY, simulator
from automation_pipeline_tests.waiting import pause, wait_until

KILLS = int(os.environ.get("KILLS", "2"))
CASES = [("in_process", "sqlite"), ("multiprocess", "postgres")][: 2 if "KILLS" in os.environ else 1]
A_RUN = 3  # Dagster tries a run that died three times more
DAY = [fiche for fiche in World(7, 200, vary=False).day(date(2026, 2, 4)) if fiche.kind is Kind.ORDINARY]
IDS = [fiche.id for fiche in DAY][:8]


@pytest.fixture
def outside_world() -> Iterator[str]:
    with simulator("--exact", "--fiches-per-day", "200", "--latency", "0.15") as url:
        yield url


@pytest.fixture
def system(tmp_path: Path, database: Database, database_url: str, outside_world: str) -> System:
    return System(
        tmp_path,
        database_url,
        outside_world,
        ELEVENLABS_BASE_URL=outside_world,
        ELEVENLABS_API_KEY="sim-speech-key",
        LLM_BASE_URL=f"{outside_world}/v1",
        LLM_API_KEY=LLM_KEY,
        TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE="6000",
        TRANSCRIPTION_LEASE_SECONDS="5",
        AUDIT_LEASE_SECONDS="2",
        LLM_RATE_LIMIT_PER_MINUTE="1000000",
        AUTOMATION_HEARTBEAT_SECONDS="0.5",
        AUTOMATION_LOST_AFTER_SECONDS="8",
    )


def finished(database: Database) -> Counter[str]:
    """Work that is stored, by the names under which the simulator counts it."""
    with database.reading() as session:
        steps = session.execute(
            select(FicheCache.fiche_id, StepResultRow.step_position)
            .join(AuditRow, AuditRow.fiche_cache_id == FicheCache.id)
            .join(StepResultRow, StepResultRow.audit_id == AuditRow.id)
        ).tuples()
        calls = session.scalars(select(RecordingRow.call_id).where(RecordingRow.has_transcription))
        return Counter([*(f"{fiche_id}/{position}" for fiche_id, position in steps), *calls])


def asked(url: str) -> Counter[str]:
    """Calls of the model and of speech-to-text that were answered, or at least begun."""
    routes = httpx.get(f"{url}/_sim/calls").raise_for_status().json()["routes"]
    return Counter(
        {item: n for name in ("llm.complete", "speech.transcribe") for item, n in routes[name]["items"].items()}
    )


def process_at_work(database: Database) -> psutil.Process | None:
    with database.reading() as session:
        workers = session.scalars(select(HeartbeatRow.worker).order_by(HeartbeatRow.beat_at.desc())).all()
    for worker in workers:
        pid = int(worker.rpartition(":")[2])
        if psutil.pid_exists(pid):
            return psutil.Process(pid)
    return None


def strike(database: Database, chance: random.Random) -> None:
    """Kill the step's process or the run's, whichever chance says, at any moment."""
    pause(chance.uniform(0.2, 2.5))
    step = process_at_work(database)
    if step is not None:
        try:
            victim = chance.choice([step, run_worker(step)])
        except (StopIteration, psutil.NoSuchProcess):
            return
        kill(victim.pid)


@pytest.mark.timeout(max(600, 60 * KILLS))
@pytest.mark.parametrize(("executor", "database_kind"), CASES, indirect=["database_kind"])
def test_a_run_ends_by_itself_however_often_it_is_killed(
    executor: str, system: System, database: Database, outside_world: str
) -> None:
    chance = random.Random(executor)
    system.environment["AUTOMATION_EXECUTOR"] = executor
    system.automation(
        "audit-configs", "import", str(REPOSITORY / "automation_pipeline_tests" / "e2e" / "five_steps.json")
    )
    with system.daemon():
        for first in range(0, KILLS, A_RUN):
            httpx.post(f"{outside_world}/_sim/reset", json={}).raise_for_status()
            before = finished(database)
            schedule_id = system.create_schedule(IDS, runTranscription=True, runAudits=True)
            run_id = system.run_now(schedule_id)
            kills = min(A_RUN, KILLS - first)
            for _ in range(kills):
                wait_until(lambda run_id=run_id: bool(process_at_work(database)) or system.has_ended(run_id), PATIENCE)
                at_the_kill = finished(database) - before
                asked_before = asked(outside_world)
                strike(database, chance)
            run = system.wait_for_end(run_id)
            assert [fiche["ficheId"] for fiche in run["fiches"]] == IDS
            assert (
                run["selectedFiches"]
                == run["successfulFiches"] + run["failedFiches"] + run["ignoredFiches"]
                == len(IDS)
            )
            assert run["status"] in {"completed", "partial", "failed"}
            repeated = {item for item in at_the_kill if asked(outside_world)[item] > asked_before[item]}
            assert repeated == set()
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(AuditRow).where(AuditRow.status == "running")) == 0
