"""A whole `automation_run` next to the physical limit: bare asyncio that makes the same calls. Prints a ratio.

python benchmarks/whole_run.py [--fiches 1000] [--latency 0.05] [--width 50]
"""

import argparse
import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "demo"))

from outside import LLM_KEY, SPEECH_KEY, TOKEN, environment, simulator  # noqa: E402  demo/ is no package

FIVE_STEPS = ROOT / "automation_pipeline_tests" / "e2e" / "five_steps.json"
AUDIO = b"\0" * 4096
MOST_MEGABYTES = 300


def main() -> None:
    options = parse()
    world = ("--port", "0", "--exact", "--fiches-per-day", str(options.fiches), "--latency", str(options.latency))
    with simulator(*world) as address, tempfile.TemporaryDirectory(prefix="whole-run-") as room:
        ours = measure_ours(address, Path(room), options)
        calls = counted(address)
        limit = asyncio.run(measure_limit(address, Path(room), calls, options.width))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; calls: {json.dumps(calls)}")
    print(f"ours  {ours['seconds']:7.1f} s  {ours['megabytes']:6.0f} MB  {ours['status']}, {ours['fiches']} fiches")
    print(f"limit {limit:7.1f} s")
    print(f"ratio {ours['seconds'] / limit:7.2f}")
    if ours["megabytes"] > MOST_MEGABYTES:
        raise SystemExit(f"The run took {ours['megabytes']:.0f} MB at its peak: {MOST_MEGABYTES} MB is the most.")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fiches", type=int, default=1000)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--width", type=int, default=50)
    return parser.parse_args()


def measure_ours(address: str, room: Path, options: argparse.Namespace) -> dict:
    home = room / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    width = str(options.width)
    variables = environment(
        address,
        DATABASE_URL=f"sqlite:///{room}/automation.db",
        DAGSTER_HOME=str(home),
        FICHE_FETCH_CONCURRENCY=width,
        TRANSCRIPTION_RECORDING_WORKER_CONCURRENCY=width,
        TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE="100000",
        LLM_RATE_LIMIT_PER_MINUTE="1000000",
        LLM_MAX_CONCURRENCY=width,
        AUDIT_RUN_CONCURRENCY=str(options.width // 3),
    )
    command(variables, "automation", "db", "upgrade")
    command(variables, "automation", "audit-configs", "import", str(FIVE_STEPS))
    schedule = {"name": "bench", "scheduleType": "MANUAL", "timezone": "Europe/Paris"}
    schedule["ficheSelection"] = {"mode": "date_range", "dateRange": "yesterday"}
    (room / "schedule.json").write_text(json.dumps(schedule))
    command(variables, "automation", "schedules", "create", "--file", str(room / "schedule.json"))
    (room / "run.yaml").write_text("ops: {open_run: {config: {schedule_id: 1}}}\n")
    job = ["dagster", "job", "execute", "-m", "automation_pipeline.definitions", "-j", "automation_run"]
    began = time.monotonic()
    with (room / "log").open("w") as log:
        process = subprocess.Popen([*job, "-c", str(room / "run.yaml")], env=variables, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    if status != 0:
        raise SystemExit((room / "log").read_text()[-3000:])
    run = json.loads(command(variables, "automation", "runs", "show", "1", "--json"))
    whole = run["successfulFiches"] + run["failedFiches"] + run["ignoredFiches"]
    assert whole == run["selectedFiches"] == options.fiches, run
    return {"seconds": seconds, "megabytes": usage.ru_maxrss / 1024, "status": run["status"], "fiches": whole}


def counted(address: str) -> Mapping[str, int]:
    routes = httpx.get(f"{address}/_sim/calls").raise_for_status().json()["routes"]
    return {name: route["calls"] for name, route in routes.items() if route["calls"]}


async def measure_limit(address: str, room: Path, calls: Mapping[str, int], width: int) -> float:
    """The same number of calls of each kind at the same width, their answers read and stored in bulk."""
    database = sqlite3.connect(room / "limit.db")
    database.execute("CREATE TABLE answers (route TEXT, body BLOB)")
    began = time.monotonic()
    async with httpx.AsyncClient(base_url=address, limits=httpx.Limits(max_connections=width), timeout=60) as http:
        for route, number in calls.items():
            await many(http, route, number, width, database)
    database.commit()
    return time.monotonic() - began


async def many(http: httpx.AsyncClient, route: str, number: int, width: int, database: sqlite3.Connection) -> None:
    todo, answers = iter(range(number)), []

    async def work() -> None:
        for each in todo:
            answer = await request(http, route, each)
            answers.append((route, answer.content))

    await asyncio.gather(*(work() for _ in range(width)))
    database.executemany("INSERT INTO answers VALUES (?, ?)", answers)


async def request(http: httpx.AsyncClient, route: str, number: int) -> httpx.Response:
    match route:
        case "llm.complete":
            prompt = {"role": "user", "content": "x" * 12_000}
            body = {"model": "gpt-5.2", "messages": [prompt]}
            return await http.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {LLM_KEY}"})
        case "speech.transcribe":
            form = {"model_id": "scribe_v1", "language_code": "fra", "timestamps_granularity": "word"}
            key = {"xi-api-key": SPEECH_KEY}
            return await http.post("/v1/speech-to-text", data=form, files={"file": ("a.mp3", AUDIO)}, headers=key)
        case _:
            key = {"Authorization": f"Bearer {TOKEN}"}
            return await http.get(f"/api/fiches/by-id/{981_700_000 + number}", headers=key)


def command(variables: Mapping[str, str], *words: str) -> str:
    return subprocess.run(words, env=variables, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
