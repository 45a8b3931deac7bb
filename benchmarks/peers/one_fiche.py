"""The work of every peer for one fiche, how it stores the outcome, and how it reports its times.
The calls of one fiche are sequential, so 50 concurrent fiches make at most 50 concurrent calls."""

import argparse
import json
import sqlite3
import sys
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar  # the blocking client hands on what it is given

import httpx

sys.path.append(str(Path(__file__).parents[1]))

import workload

Outcome = tuple[str, int, int, str]  # fiche, recordings, words, verdict
COLUMNS = "fiche_id TEXT PRIMARY KEY, recordings INTEGER, words INTEGER, verdict TEXT"
T = TypeVar("T")


class Upstream:
    """For asynchronous tools."""

    def __init__(self, address: str, width: int) -> None:
        self._http = workload.client(address, width)
        self._steps: list[workload.Document] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def fiches(self) -> list[str]:
        self._steps = await workload.steps_of(self._http)
        return await workload.sales_list(self._http)

    async def outcome(self, fiche_id: str) -> Outcome:
        if self._steps is None:
            self._steps = await workload.steps_of(self._http)
        return await outcome_of(self._http, self._steps, fiche_id)


class BlockingUpstream:
    """For tools whose tasks are plain functions in threads, greenlets or processes."""

    def __init__(self, address: str, width: int) -> None:
        limits = httpx.Limits(max_connections=width, max_keepalive_connections=width)
        timeout = workload.TIMEOUT_SECONDS
        self._http = Blocking(
            httpx.Client(base_url=address, limits=limits, timeout=timeout, trust_env=False)
        )
        self._steps = at_once(workload.steps_of(self._http))

    def fiches(self) -> list[str]:
        return at_once(workload.sales_list(self._http))

    def outcome(self, fiche_id: str) -> Outcome:
        return at_once(outcome_of(self._http, self._steps, fiche_id))


class Blocking:
    """A blocking client with the interface of an asynchronous one. Each call finishes before it is
    awaited."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    async def get(self, *given: Any, **named: Any) -> httpx.Response:  # noqa: ANN401  handed on
        return self._http.get(*given, **named)

    async def post(self, *given: Any, **named: Any) -> httpx.Response:  # noqa: ANN401  handed on
        return self._http.post(*given, **named)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over a blocking client, which never waits for a loop, in one step."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    work.close()
    raise RuntimeError("This coroutine waits for something else than the blocking client.")


async def outcome_of(
    http: httpx.AsyncClient | Blocking, steps: list[workload.Document], fiche_id: str
) -> Outcome:
    recordings = (await workload.fetch_details(http, fiche_id))["recordings"]
    transcripts = [
        await workload.transcribe(http, await workload.fetch_audio(http, each))
        for each in recordings
    ]
    judged = [await workload.judge(http, step, recordings, transcripts) for step in steps]
    words = sum(map(workload.words_of, transcripts))
    return fiche_id, len(recordings), words, workload.verdict(steps, judged)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--fiches", type=int, required=True)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--folder", type=Path, required=True)
    return parser.parse_args()


class Results:
    """`result.db`. Each row is committed when its fiche ends; threads and processes may share it."""

    def __init__(self, folder: Path) -> None:
        self._start_file = folder / "began"
        self._alone = threading.Lock()
        self._rows = sqlite3.connect(
            folder / "result.db", isolation_level=None, check_same_thread=False, timeout=60
        )
        self._rows.execute("PRAGMA journal_mode = WAL")
        self._rows.execute("PRAGMA synchronous = NORMAL")
        self._rows.execute(f"CREATE TABLE IF NOT EXISTS outcomes({COLUMNS})")

    def begin(self) -> None:
        """The first item records the start time."""
        if not self._start_file.exists():
            try:
                with self._start_file.open("x") as file:
                    file.write(str(time.time()))
            except FileExistsError:
                return

    def add(self, outcome: Outcome) -> None:
        with self._alone:
            self._rows.execute("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?)", outcome)

    def close(self) -> None:
        self._rows.close()


def report(folder: Path, started: float) -> None:
    ended, first_item_at = time.time(), float((folder / "began").read_text())
    print(
        json.dumps(
            {
                "seconds": round(ended - started, 3),
                "started_seconds": round(first_item_at - started, 3),
            }
        ),
        flush=True,
    )
