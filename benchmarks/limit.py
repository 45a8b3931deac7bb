"""The physical limit: asyncio and httpx without a framework make the same calls, and write the same
rows in bulk.

python benchmarks/limit.py --upstream URL --fiches N --width 50 --folder DIR --like automation.db
    [--apart]

`--like` is the database of a small `automation_run`, whose rows are repeated for each fiche.
"""

import argparse
import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import cycle, islice
from pathlib import Path

import httpx
import workload
from rows import Row, Shape, shape_of

# By number of recordings: a fiche of the small run that has so many.
SAMPLES = {1: "700000002", 2: "700000000", 3: "700000001"}
FICHES_A_WRITE = 200
OUTCOMES = "CREATE TABLE outcomes (fiche_id TEXT PRIMARY KEY, recordings INTEGER, words INTEGER, verdict TEXT)"
OUTCOME = "INSERT INTO outcomes VALUES (?, ?, ?, ?)"


class Book:
    """Collects the rows of fiches, and writes those of many fiches at once while calls continue."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self._writer = shape.writer()
        self._waiting: dict[str, list[Row]] = {}
        self._fiches = 0
        self._connection = sqlite3.connect(path, check_same_thread=False)
        for setting in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
            self._connection.execute(f"PRAGMA {setting}")
        for statement in (*shape.schema, OUTCOMES):
            self._connection.execute(statement)
        self._writing = asyncio.Lock()
        # Rows of the run and of its fiches refer to each other.
        self._connection.execute("PRAGMA foreign_keys = OFF")
        for table, values in shape.once:
            self._connection.execute(table.statement, values)
        self._connection.commit()

    async def add(self, outcome: Row) -> None:
        for statement, rows in self._writer.rows(str(outcome[0]), int(outcome[1] or 0)).items():
            self._waiting.setdefault(statement, []).extend(rows)
        self._waiting.setdefault(OUTCOME, []).append(outcome)
        self._fiches += 1
        if self._fiches >= FICHES_A_WRITE:
            await self.flush()

    async def flush(self) -> None:
        waiting, self._waiting, self._fiches = self._waiting, {}, 0
        async with self._writing:
            await asyncio.to_thread(self._write, waiting)

    def close(self) -> None:
        self._connection.close()

    def _write(self, waiting: dict[str, list[Row]]) -> None:
        with self._connection:
            for statement, rows in waiting.items():
                self._connection.executemany(statement, rows)


async def work_through(options: argparse.Namespace) -> float:
    """Returns the time at which the first item began."""
    book = Book(options.folder / "result.db", shape_of(options.like, SAMPLES))
    async with AsyncExitStack() as stack:
        https = [await stack.enter_async_context(client) for client in clients_of(options)]
        steps = await workload.steps_of(https[0])
        fiches = iter(await workload.sales_list(https[0]))
        started_at = time.monotonic()

        async def work(todo: Iterator[str], http: httpx.AsyncClient) -> None:
            for fiche_id in todo:
                details = await workload.fetch_details(http, fiche_id)
                recordings = details["recordings"]
                transcripts = [
                    await workload.transcribe(http, await workload.fetch_audio(http, each))
                    for each in recordings
                ]
                judged = [
                    await workload.judge(http, step, recordings, transcripts) for step in steps
                ]
                words = sum(map(workload.words_of, transcripts))
                await book.add((fiche_id, len(recordings), words, workload.verdict(steps, judged)))

        await asyncio.gather(*(work(fiches, http) for http in islice(cycle(https), options.width)))
    await book.flush()
    book.close()
    return started_at


def clients_of(options: argparse.Namespace) -> list[httpx.AsyncClient]:
    """One client for all workers, or one per worker, so that httpx does not search among all
    connections."""
    alone = [
        workload.client(options.upstream, 1) for _ in range(options.width if options.apart else 0)
    ]
    return alone or [workload.client(options.upstream, options.width)]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--fiches", type=int, required=True)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--apart", action="store_true", help="each worker has its own client")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--like", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    started = time.monotonic()
    first = asyncio.run(work_through(parse()))
    print(json.dumps({"seconds": time.monotonic() - started, "started_seconds": first - started}))
