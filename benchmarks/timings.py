"""The databases of `components.py`, and the timing of a function with its CPU seconds and
statements."""

import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TypeVar

import pipeline_run
from sqlalchemy import event, text

from automation_pipeline import migrations
from automation_pipeline.storage.database import Database

Answer = TypeVar("Answer")
CLIENT_PIDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The PostgreSQL server, the folder of SQLite's files, the sizes, and the number of
    repetitions."""

    server: str
    folder: Path
    schedules: Sequence[int]
    recordings: Sequence[int]
    repetitions: int

    def urls(self) -> dict[str, str]:
        """URLs of empty databases by the name of their kind."""
        sqlite = f"sqlite:///{tempfile.mkdtemp(dir=self.folder)}/automation.db"
        return {"PostgreSQL": pipeline_run.fresh_database(self.server), "SQLite": sqlite}

    def databases(self) -> Iterator[tuple[str, Database]]:
        for name, url in self.urls().items():
            with migrated(url) as database:
                yield name, database


@contextmanager
def migrated(url: str) -> Generator[Database]:
    database = Database(url)
    try:
        migrations.upgrade(database)
        yield database
    finally:
        database.dispose()


@dataclass
class Timings:
    """Seconds and statements of repeated calls. `busy` has CPU seconds, including PostgreSQL's."""

    seconds: list[float] = field(default_factory=list[float])
    busy: list[float] = field(default_factory=list[float])
    statements: list[int] = field(default_factory=list[int])

    def take(self, database: Database, run_once: Callable[[], Answer]) -> Answer:
        busy = server_seconds(database)
        with statements(database) as seen:
            started_at, ours_busy = time.perf_counter(), time.process_time()
            answer = run_once()
            self.seconds.append(time.perf_counter() - started_at)
            ours_busy = time.process_time() - ours_busy
        self.busy.append(ours_busy + server_seconds(database) - busy)
        self.statements.append(len(seen))
        return answer

    @property
    def median(self) -> float:
        return median(self.seconds)

    def __str__(self) -> str:
        """On a shared machine the fastest time says more than the median."""
        return f"fastest {min(self.seconds):.4f} s, CPU {median(self.busy):.3f} s, statements {joined(self.statements)}"


def server_seconds(database: Database) -> float:
    """CPU seconds so far of the PostgreSQL processes that serve this process; only on Linux."""
    if database.dialect != "postgresql":
        return 0.0
    with database.reading() as session:
        pids = session.scalars(text(CLIENT_PIDS)).all()
    spent = [path for path in (Path(f"/proc/{pid}/schedstat") for pid in pids) if path.exists()]
    return sum(int(path.read_text().split()[0]) for path in spent) / 1e9


@contextmanager
def statements(database: Database) -> Generator[list[str]]:
    """A statement that is executed for many rows counts once."""
    seen: list[str] = []

    def count(*given: object) -> None:
        seen.append(str(given[2]))

    event.listen(database.engine, "before_cursor_execute", count)
    try:
        yield seen
    finally:
        event.remove(database.engine, "before_cursor_execute", count)


def joined(counts: Sequence[int]) -> str:
    return " or ".join(map(str, sorted(set(counts))))
