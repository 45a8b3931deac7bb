"""The programs that the benchmark compares: the limit, `automation_run` on both databases, and the
peers. Each works in its own folder."""

import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import harness
import pipeline_run
import redis
from peers import environments

sys.path.insert(0, str(Path(__file__).parents[1]))

from automation_pipeline_tests.services import redis_server

LIMIT, LIMIT_APART, OURS, OURS_POSTGRES = "limit", "limit-apart", "ours", "ours-postgres"
NO_PEERS = (LIMIT, LIMIT_APART, OURS, OURS_POSTGRES)
SAMPLE_FICHES = 9
# The number of rows of the run itself depends on time: at most one per ten fiches, which write many
# times as much.
MOST_DIFFERENCE, MOST_ROWS_APART, MOST_OF_FICHES = 0.02, 60, 0.1


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One repetition. `to_first_call` is the time until the upstream receives the first call."""

    name: str
    fiches: int
    seconds: float
    busy_seconds: float
    megabytes: float
    to_first_call: float
    calls: int
    rows: Mapping[str, int] = field(default_factory=dict)
    database_bytes: int = 0
    dagster_events: int = 0

    @property
    def without_start(self) -> float:
        return self.seconds - self.to_first_call


@dataclass
class Environment:
    """What competitors share: servers, which start on first use, and the database of a small
    `automation_run`, from which the limit copies its rows."""

    width: int
    latency: float
    stack: ExitStack
    _postgres: str = ""
    _redis: str = ""
    _sample: Path | None = None

    @property
    def postgres(self) -> str:
        self._postgres = self._postgres or self.stack.enter_context(pipeline_run.server())
        return self._postgres

    @property
    def redis(self) -> str:
        """Emptied at each access."""
        self._redis = self._redis or self.stack.enter_context(redis_server())
        redis.Redis.from_url(self._redis).flushall()
        return self._redis

    @property
    def sample(self) -> Path:
        if self._sample is None:
            folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="sample-")))
            with harness.upstream(fiches=SAMPLE_FICHES, latency=self.latency) as address:
                pipeline_run.run(pipeline_run.RunSetup(folder, address, self.width), SAMPLE_FICHES)
            self._sample = folder / "automation.db"
        return self._sample


Competitor = Callable[[Environment, str, int, Path], Measurement]


def competitors() -> dict[str, Competitor]:
    peers = {name: partial(_peer, name) for name in environments.peers()}
    limits = {name: partial(_limit, name) for name in (LIMIT, LIMIT_APART)}
    return {
        **limits,
        OURS: partial(_pipeline, OURS),
        OURS_POSTGRES: partial(_pipeline, OURS_POSTGRES),
        **peers,
    }


@contextmanager
def open_environment(width: int, latency: float) -> Generator[Environment]:
    with ExitStack() as stack:
        yield Environment(width, latency, stack)


def measure(name: str, fiches: int, environment: Environment) -> Measurement:
    """IncompleteRunError: the competitor did not do all of the work."""
    competitor = competitors()[name]
    with (
        harness.upstream(fiches=fiches, latency=environment.latency) as address,
        tempfile.TemporaryDirectory(prefix=f"{name}-", ignore_cleanup_errors=True) as folder,
    ):
        return competitor(environment, address, fiches, Path(folder))


def check_same_rows(pipeline_measurement: Measurement, limit: Measurement) -> None:
    """The limit must write as many rows per table as `automation_run`. Only rows of the run itself
    may differ."""
    for table in pipeline_measurement.rows | limit.rows:
        one, other = pipeline_measurement.rows.get(table, 0), limit.rows.get(table, 0)
        if abs(one - other) > max(
            MOST_ROWS_APART, MOST_DIFFERENCE * one, MOST_OF_FICHES * limit.fiches
        ):
            raise harness.IncompleteRunError(
                f"automation_run wrote {one} rows of {table}, and the limit {other}."
            )


def _pipeline(
    name: str, environment: Environment, address: str, fiches: int, folder: Path
) -> Measurement:
    database = pipeline_run.fresh_database(environment.postgres) if name == OURS_POSTGRES else None
    result = pipeline_run.run(
        pipeline_run.RunSetup(folder, address, environment.width, database), fiches
    )
    return Measurement(
        name=name,
        fiches=fiches,
        seconds=result.seconds,
        busy_seconds=result.busy_seconds,
        megabytes=result.megabytes,
        to_first_call=result.to_first_call,
        calls=sum(harness.calls(address)["calls"].values()),
        rows=result.rows,
        database_bytes=result.database_bytes,
        dagster_events=result.dagster_events,
    )


def _limit(
    name: str, environment: Environment, address: str, fiches: int, folder: Path
) -> Measurement:
    more = ("--like", str(environment.sample), *(["--apart"] if name == LIMIT_APART else []))
    command = (sys.executable, str(harness.HERE / "limit.py"))
    arguments = _arguments(environment, address, fiches, folder)
    measured = _timed(name, (*command, *arguments, *more), os.environ, fiches, folder, address)
    written = sum(path.stat().st_size for path in folder.glob("result.db*"))
    return replace(measured, rows=_rows(folder / "result.db"), database_bytes=written)


def _peer(
    name: str, environment: Environment, address: str, fiches: int, folder: Path
) -> Measurement:
    command = (str(environments.python_of(name)), str(environments.competitor_of(name)))
    services = {
        "DATABASE_URL": pipeline_run.fresh_database(environment.postgres),
        "REDIS_URL": environment.redis,
    }
    arguments = _arguments(environment, address, fiches, folder)
    return _timed(name, (*command, *arguments), os.environ | services, fiches, folder, address)


def _arguments(
    environment: Environment, address: str, fiches: int, folder: Path
) -> tuple[str, ...]:
    return (
        "--upstream",
        address,
        "--fiches",
        str(fiches),
        "--width",
        str(environment.width),
        "--folder",
        str(folder),
    )


def _timed(
    name: str,
    command: tuple[str, ...],
    variables: Mapping[str, str],
    fiches: int,
    folder: Path,
    address: str,
) -> Measurement:
    width = int(command[command.index("--width") + 1])
    with tempfile.NamedTemporaryFile(prefix=f"{name}-log-") as log:
        ended = harness.timed(command, variables, Path(log.name))
    harness.last_json(ended.output)
    seen = harness.calls(address)
    harness.check_calls(seen, fiches=fiches, width=width)
    with closing(sqlite3.connect(folder / "result.db")) as connection:
        outcomes = connection.execute(
            "SELECT fiche_id, recordings, words, verdict FROM outcomes"
        ).fetchall()
    harness.check_outcomes(outcomes, fiches)
    return Measurement(
        name=name,
        fiches=fiches,
        seconds=ended.seconds,
        busy_seconds=ended.busy_seconds,
        megabytes=ended.megabytes,
        to_first_call=harness.to_first_call(seen, ended),
        calls=sum(seen["calls"].values()),
    )


def _rows(database: Path) -> dict[str, int]:
    """The number of rows per table, without empty tables and the table that only the limit has."""
    listing = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'outcomes'"
    with closing(sqlite3.connect(database)) as connection:
        names = [row[0] for row in connection.execute(listing)]
        found = {
            name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608  table names
            for name in names
        }
    return {name: number for name, number in found.items() if number}
