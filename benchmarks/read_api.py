"""Compares `GET /api/automation/runs/{id}` under load with the bare query through SQLAlchemy, and
prints the ratio of their p99.

python benchmarks/read_api.py [--requests 2000] [--width 8]

Both read the same run with the same concurrency, alternately.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from threading import local

import httpx

from automation_pipeline import migrations
from automation_pipeline.automation.models.runs import Trigger
from automation_pipeline.automation.queries.ledger import open_ledger
from automation_pipeline.automation.queries.run_details import run_detail
from automation_pipeline.automation.queries.runs import add_run, write_log
from automation_pipeline.automation.schedules import create_schedule
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.storage.database import Database

TOKEN = "a-token-of-the-benchmark"
FICHES, LOGS, SHARES = 1000, 100, 10
MOST = 3.0
LIMIT_MILLISECONDS = 1000


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="read-api-") as folder:
        url = os.environ.get("DATABASE_URL", f"sqlite:///{folder}/automation.db")
        bare, served = measured(url, Path(folder), requests=options.requests, width=options.width)
    print(
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {options.requests} each, {options.width} at once"
    )
    print(f"bare query  p50 {p(50, bare):7.2f} ms  p99 {p(99, bare):7.2f} ms")
    print(f"api         p50 {p(50, served):7.2f} ms  p99 {p(99, served):7.2f} ms")
    ratio = p(99, served) / p(99, bare)
    print(f"ratio of p99 {ratio:.2f}")
    if ratio > MOST:
        raise SystemExit(f"The API is to be within {MOST:g} times of the bare query.")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--width", type=int, default=8)
    return parser.parse_args()


def measured(url: str, folder: Path, *, requests: int, width: int) -> tuple[list[float], ...]:
    """The milliseconds of the bare queries, and of the API's requests."""
    database = Database(url)
    try:
        run_id = stored_run(database)
        with api(url, folder) as address:
            return measure(
                bare_query(database, run_id),
                request(address, run_id),
                requests=requests,
                width=width,
            )
    finally:
        database.dispose()


def stored_run(database: Database) -> int:
    """A run with results of fiches and log entries."""
    migrations.upgrade(database)
    clock = SystemClock()
    selection = {"mode": "manual", "ficheIds": ["1"]}
    given = {"name": "Read", "scheduleType": "MANUAL", "ficheSelection": selection}
    schedule = create_schedule(given, database=database, clock=clock)
    with database.transaction() as session:
        row = add_run(session, schedule, Trigger.MANUAL, clock.now())
        row.selected_fiches = FICHES
        open_ledger(session, row.id, [str(number) for number in range(FICHES)], 200, clock.now())
        for number in range(LOGS):
            write_log(
                session, row.id, clock.now(), "info", f"Line {number} of what the run wrote down"
            )
        return row.id


@contextmanager
def api(url: str, folder: Path) -> Generator[str]:
    command = [str(Path(sys.executable).parent / "automation"), "api", "--port", "0"]
    environment = {
        **os.environ,
        "DATABASE_URL": url,
        "API_AUTH_TOKENS": TOKEN,
        "LOG_LEVEL": "warning",
    }
    with subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield line.rpartition(" ")[2].strip()
        finally:
            process.terminate()


def bare_query(database: Database, run_id: int) -> Callable[[], object]:
    def ask() -> object:
        with database.reading() as session:
            return run_detail(session, run_id, first_logs=LOGS)

    return ask


def request(address: str, run_id: int) -> Callable[[], object]:
    mine = local()

    def ask() -> object:
        if not hasattr(mine, "client"):
            headers = {"Authorization": f"Bearer {TOKEN}"}
            mine.client = httpx.Client(base_url=address, headers=headers, verify=False)  # noqa: S501  http
        return mine.client.get(f"/api/automation/runs/{run_id}").raise_for_status()

    return ask


def measure(*asks: Callable[[], object], requests: int, width: int) -> tuple[list[float], ...]:
    found: tuple[list[float], ...] = tuple([] for _ in asks)
    with ThreadPoolExecutor(width) as pool:
        for ask in asks:
            list(pool.map(lambda _n, ask=ask: ask(), range(width * 5)))  # warm
        for _ in range(SHARES):
            for ask, into in zip(asks, found, strict=True):
                into.extend(pool.map(lambda _n, ask=ask: timed(ask), range(requests // SHARES)))
    return found


def timed(ask: Callable[[], object]) -> float:
    started = time.perf_counter()
    ask()
    return (time.perf_counter() - started) * LIMIT_MILLISECONDS


def p(percent: int, milliseconds: list[float]) -> float:
    return quantiles(milliseconds, n=100)[percent - 1]


if __name__ == "__main__":
    main()
