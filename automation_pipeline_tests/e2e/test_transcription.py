"""Transcription by several processes: the provider's cap, kills, a Redis that goes away, the command line."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import func, select

from automation_pipeline.fiches.tables import RecordingRow
from automation_pipeline.simulator import Fiche, Kind, World
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline.storage.pulses import DAEMON, seconds_since_beat
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow
from automation_pipeline_tests import services
from automation_pipeline_tests.e2e.system import PATIENCE, System, kill
from automation_pipeline_tests.outside import fault, simulator
from automation_pipeline_tests.survival.progress import run_worker_of
from automation_pipeline_tests.waiting import wait_until

WORLD = World(7, 200, vary=False)
SOLD = [fiche for fiche in WORLD.day(date(2026, 2, 3)) if fiche.kind is Kind.ORDINARY]
MANY = next(fiche for fiche in WORLD.day(date(2026, 2, 3)) if fiche.kind is Kind.MANY_RECORDINGS)


@pytest.fixture
def provider() -> Iterator[str]:
    with simulator("--exact", "--fiches-per-day", "200") as url:
        yield url


@pytest.fixture
def system(tmp_path: Path, database_url: str, provider: str) -> System:
    return System(
        tmp_path,
        database_url,
        provider,
        ELEVENLABS_BASE_URL=provider,
        ELEVENLABS_API_KEY="sim-speech-key",
        TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE="6000",
        TRANSCRIPTION_LEASE_SECONDS="10",
    )


def transcriber(system: System, fiches: Sequence[Fiche]) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("transcriber.py")
    return subprocess.Popen(
        [sys.executable, str(script), *(fiche.id for fiche in fiches)], env=system.environment, cwd=system.room
    )


def heard(provider: str, *, times: bool = False) -> dict:
    routes = httpx.get(f"{provider}/_sim/calls", params={"times": 1} if times else {}).json()["routes"]
    return routes.get("speech.transcribe", {"items": {}, "calls": 0})


def transcribed(database: Database) -> int:
    with database.reading() as session:
        query = select(func.count()).select_from(RecordingRow).where(RecordingRow.has_transcription)
        return session.scalar(query) or 0


def has_ticked(database: Database) -> bool:
    """Dagster's daemon has loaded the definitions, and a sensor has ticked."""
    with database.reading() as session:
        return seconds_since_beat(session, DAEMON) is not None


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_four_processes_together_keep_to_the_cap_and_use_all_of_it(
    system: System, database: Database, provider: str
) -> None:
    cap, wanted = 240, 270
    fiches: list[Fiche] = []
    while sum(len(fiche.recordings) for fiche in fiches) < wanted:
        fiches.append(SOLD[len(fiches)])
    recordings = sum(len(fiche.recordings) for fiche in fiches)
    system.environment["TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE"] = str(cap)
    # A call that leaves in time may arrive late: on a busy machine by more than the hundredth that is kept to spare.
    httpx.post(f"{provider}/_sim/speech", json={"per_minute": cap + cap // 20}).raise_for_status()

    began = time.monotonic()
    crew = [transcriber(system, fiches[worker::4]) for worker in range(4)]
    assert [process.wait(PATIENCE) for process in crew] == [0, 0, 0, 0]
    took = time.monotonic() - began

    ledger = heard(provider, times=True)
    assert set(ledger["statuses"]) == {"200"}, "the provider refused a call"
    assert ledger["items"] == {call.call_id: 1 for fiche in fiches for call in fiche.recordings}
    assert transcribed(database) == recordings
    ideal = recordings / cap * 60
    sys.stdout.write(f"{recordings} recordings at {cap}/min: {took:.1f} s, {took / ideal:.3f} of the ideal\n")


@pytest.mark.parametrize("database_kind", ["sqlite", "postgres"], indirect=True)
def test_a_killed_worker_is_replaced_without_a_human_and_nothing_finished_is_sent_again(
    system: System, database: Database, provider: str
) -> None:
    system.environment["TRANSCRIPTION_RECORDING_WORKER_CONCURRENCY"] = "2"
    fault(provider, {"route": "speech.transcribe", "latency_seconds": 0.3})
    with system.daemon():
        [asked] = system.automation("transcribe", MANY.id)["transcriptions"]
        wait_until(lambda: transcribed(database) >= 4, PATIENCE)
        kill(run_worker_of(_worker(database)).pid)
        with database.reading() as session:
            done = set(session.scalars(select(RecordingRow.call_id).where(RecordingRow.has_transcription)))
        wait_until(lambda: transcribed(database) == len(MANY.recordings), PATIENCE)
        wait_until(lambda: _status(database, asked["run_id"]) == "completed", PATIENCE)
    calls = heard(provider)["items"]
    assert {call_id for call_id in done if calls[call_id] != 1} == set()
    with database.reading() as session:
        names = list(session.scalars(select(OutboxRow.event_name)))
    assert names.count("transcription.completed") == names.count("fiche/transcribed") == 1


def _worker(database: Database) -> psutil.Process:
    with database.reading() as session:
        owner = session.scalars(select(TranscriptionTaskRow.owner).where(TranscriptionTaskRow.owner.is_not(None)))
        return psutil.Process(int(str(owner.first()).partition("/")[0].rpartition(":")[2]))


def _status(database: Database, run_id: str) -> str | None:
    with database.reading() as session:
        return session.scalar(select(TranscriptionRunRow.status).where(TranscriptionRunRow.id == run_id))


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_redis_that_goes_away_in_the_middle_is_noticed_by_nobody_but_the_log(
    system: System, database: Database, provider: str
) -> None:
    system.environment["TRANSCRIPTION_RECORDING_WORKER_CONCURRENCY"] = "2"
    fault(provider, {"route": "speech.transcribe", "latency_seconds": 0.2})
    with services.redis_server() as redis_url:
        system.environment["REDIS_URL"] = redis_url
        process = transcriber(system, [MANY])
        wait_until(lambda: transcribed(database) >= 3, PATIENCE)
    assert process.wait(PATIENCE) == 0
    assert transcribed(database) == len(MANY.recordings)
    assert set(heard(provider)["items"].values()) == {1}
    with database.reading() as session:
        assert session.scalars(select(TranscriptionRunRow.status)).all() == ["completed"]
        assert session.scalars(select(TranscriptionTaskRow.leased_until)).all() == [None] * len(MANY.recordings)


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_the_command_line_follows_to_the_end(system: System, provider: str, database: Database) -> None:
    with system.daemon():
        wait_until(lambda: has_ticked(database), PATIENCE)
        ended = system.run("automation", "transcribe", SOLD[0].id, SOLD[1].id, "--priority", "high", "--wait", "--json")
        assert ended.returncode == 0, ended.stderr
        missing = system.run("automation", "transcribe", "999999999", "--wait", "--json")
    assert missing.returncode == 1
    shown = system.run("automation", "fiches", "show", SOLD[0].id)
    assert f"{len(SOLD[0].recordings)} transcribed" in shown.stdout


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_without_a_key_the_wish_comes_to_nothing_with_one_sentence(system: System) -> None:
    system.environment["ELEVENLABS_API_KEY"] = ""
    ended = system.run("automation", "transcribe", SOLD[0].id, "--here")
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith("ElevenLabs API key not configured (set ELEVENLABS_API_KEY).")


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_without_a_daemon_the_command_says_so_or_does_the_work_here(system: System) -> None:
    nothing = system.run("automation", "transcribe", SOLD[0].id, "--wait", "--json")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert json.loads(nothing.stderr)["error"]["code"] == "NO_DAEMON"
    ended = system.run("automation", "transcribe", SOLD[1].id, "--here", "--json")
    assert ended.returncode == 0, ended.stderr
    [told] = json.loads(ended.stdout)["transcriptions"]
    assert (told["status"], told["transcribed"]) == ("completed", len(SOLD[1].recordings))
