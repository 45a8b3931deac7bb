"""Where the ground is measured, for how long, and with how many statements. What is measured is in
ground.py."""

import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TypeVar

import ours
from sqlalchemy import event, text

from automation_pipeline import migrations
from automation_pipeline.storage.database import Database

Answer = TypeVar("Answer")
OURS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How much of everything, how often, on a PostgreSQL server and in a room for SQLite's
    files."""

    server: str
    room: Path
    schedules: Sequence[int]
    recordings: Sequence[int]
    repetitions: int

    def urls(self) -> dict[str, str]:
        """Of an empty database each, by the name of its kind."""
        sqlite = f"sqlite:///{tempfile.mkdtemp(dir=self.room)}/automation.db"
        return {"PostgreSQL": ours.fresh_database(self.server), "SQLite": sqlite}

    def places(self) -> Iterator[tuple[str, Database]]:
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
class Looks:
    """Seconds and statements of looks of one kind. `busy`: processor seconds, PostgreSQL's with
    ours."""

    seconds: list[float] = field(default_factory=list[float])
    busy: list[float] = field(default_factory=list[float])
    statements: list[int] = field(default_factory=list[int])

    def take(self, database: Database, look: Callable[[], Answer]) -> Answer:
        busy = server_seconds(database)
        with statements(database) as seen:
            began, ours_busy = time.perf_counter(), time.process_time()
            answer = look()
            self.seconds.append(time.perf_counter() - began)
            ours_busy = time.process_time() - ours_busy
        self.busy.append(ours_busy + server_seconds(database) - busy)
        self.statements.append(len(seen))
        return answer

    @property
    def median(self) -> float:
        return median(self.seconds)

    def __str__(self) -> str:
        """Next to the median: on a machine that others use too, the fastest says more."""
        return f"fastest {min(self.seconds):.4f} s, CPU {median(self.busy):.3f} s, statements {joined(self.statements)}"


def server_seconds(database: Database) -> float:
    """Processor seconds so far of those PostgreSQL processes that we have connections to; on Linux
    only."""
    if database.dialect != "postgresql":
        return 0.0
    with database.reading() as session:
        pids = session.scalars(text(OURS)).all()
    spent = [path for path in (Path(f"/proc/{pid}/schedstat") for pid in pids) if path.exists()]
    return sum(int(path.read_text().split()[0]) for path in spent) / 1e9


@contextmanager
def statements(database: Database) -> Generator[list[str]]:
    """One that is executed for many rows counts once."""
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
