"""Who takes part: the limit, ours on two databases, the peers; each works in a room of its own."""

import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import contest
import ours
import redis
from peers import environments

sys.path.insert(0, str(Path(__file__).parents[1]))

from automation_pipeline_tests.services import redis_server

LIMIT, LIMIT_APART, OURS, OURS_POSTGRES = "limit", "limit-apart", "ours", "ours-postgres"
NO_PEERS = (LIMIT, LIMIT_APART, OURS, OURS_POSTGRES)
SAMPLE_FICHES = 9
# Rows of the run itself, told by the clock: at most one for every ten fiches, which leave many
# times as much.
MOST_DIFFERENCE, MOST_ROWS_APART, MOST_OF_FICHES = 0.02, 60, 0.1


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One repetition. `to_first_call`: how long the start took, seen by the upstream."""

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
class Ring:
    """What the contestants need: services, started when the first one asks, and a small run of ours
    for the limit."""

    width: int
    latency: float
    stack: ExitStack
    _postgres: str = ""
    _redis: str = ""
    _sample: Path | None = None

    @property
    def postgres(self) -> str:
        self._postgres = self._postgres or self.stack.enter_context(ours.server())
        return self._postgres

    @property
    def redis(self) -> str:
        """Empty each time."""
        self._redis = self._redis or self.stack.enter_context(redis_server())
        redis.Redis.from_url(self._redis).flushall()
        return self._redis

    @property
    def sample(self) -> Path:
        if self._sample is None:
            room = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="sample-")))
            with contest.upstream(fiches=SAMPLE_FICHES, latency=self.latency) as address:
                ours.run(ours.Place(room, address, self.width), SAMPLE_FICHES)
            self._sample = room / "automation.db"
        return self._sample


Contestant = Callable[[Ring, str, int, Path], Measured]


def contestants() -> dict[str, Contestant]:
    peers = {name: partial(_peer, name) for name in environments.peers()}
    limits = {name: partial(_limit, name) for name in (LIMIT, LIMIT_APART)}
    return {
        **limits,
        OURS: partial(_ours, OURS),
        OURS_POSTGRES: partial(_ours, OURS_POSTGRES),
        **peers,
    }


@contextmanager
def ring(width: int, latency: float) -> Generator[Ring]:
    with ExitStack() as stack:
        yield Ring(width, latency, stack)


def measure(name: str, fiches: int, given: Ring) -> Measured:
    """NotDoneError when it did less than it should: then there is no time."""
    contestant = contestants()[name]
    with (
        contest.upstream(fiches=fiches, latency=given.latency) as address,
        tempfile.TemporaryDirectory(prefix=f"{name}-", ignore_cleanup_errors=True) as room,
    ):
        return contestant(given, address, fiches, Path(room))


def check_same_rows(ours_measured: Measured, limit: Measured) -> None:
    """The limit writes as much as we do, table by table; only rows of the run itself may differ."""
    for table in ours_measured.rows | limit.rows:
        one, other = ours_measured.rows.get(table, 0), limit.rows.get(table, 0)
        if abs(one - other) > max(
            MOST_ROWS_APART, MOST_DIFFERENCE * one, MOST_OF_FICHES * limit.fiches
        ):
            raise contest.NotDoneError(
                f"{table} has {one} rows of ours and {other} of the limit's."
            )


def _ours(name: str, given: Ring, address: str, fiches: int, room: Path) -> Measured:
    database = ours.fresh_database(given.postgres) if name == OURS_POSTGRES else None
    result = ours.run(ours.Place(room, address, given.width, database), fiches)
    return Measured(
        name=name,
        fiches=fiches,
        seconds=result.seconds,
        busy_seconds=result.busy_seconds,
        megabytes=result.megabytes,
        to_first_call=result.to_first_call,
        calls=sum(contest.calls(address)["calls"].values()),
        rows=result.rows,
        database_bytes=result.database_bytes,
        dagster_events=result.dagster_events,
    )


def _limit(name: str, given: Ring, address: str, fiches: int, room: Path) -> Measured:
    more = ("--like", str(given.sample), *(["--apart"] if name == LIMIT_APART else []))
    command = (sys.executable, str(contest.HERE / "limit.py"))
    arguments = _arguments(given, address, fiches, room)
    made = _timed(name, (*command, *arguments, *more), os.environ, fiches, room, address)
    written = sum(path.stat().st_size for path in room.glob("result.db*"))
    return replace(made, rows=_rows(room / "result.db"), database_bytes=written)


def _peer(name: str, given: Ring, address: str, fiches: int, room: Path) -> Measured:
    command = (str(environments.python_of(name)), str(environments.contestant_of(name)))
    services = {"DATABASE_URL": ours.fresh_database(given.postgres), "REDIS_URL": given.redis}
    arguments = _arguments(given, address, fiches, room)
    return _timed(name, (*command, *arguments), os.environ | services, fiches, room, address)


def _arguments(given: Ring, address: str, fiches: int, room: Path) -> tuple[str, ...]:
    return (
        "--upstream",
        address,
        "--fiches",
        str(fiches),
        "--width",
        str(given.width),
        "--room",
        str(room),
    )


def _timed(
    name: str,
    command: tuple[str, ...],
    variables: Mapping[str, str],
    fiches: int,
    room: Path,
    address: str,
) -> Measured:
    width = int(command[command.index("--width") + 1])
    with tempfile.NamedTemporaryFile(prefix=f"{name}-log-") as log:
        ended = contest.timed(command, variables, Path(log.name))
    contest.last_json(ended.output)
    seen = contest.calls(address)
    contest.check_calls(seen, fiches=fiches, width=width)
    with closing(sqlite3.connect(room / "result.db")) as connection:
        outcomes = connection.execute(
            "SELECT fiche_id, recordings, words, verdict FROM outcomes"
        ).fetchall()
    contest.check_outcomes(outcomes, fiches)
    return Measured(
        name=name,
        fiches=fiches,
        seconds=ended.seconds,
        busy_seconds=ended.busy_seconds,
        megabytes=ended.megabytes,
        to_first_call=contest.to_first_call(seen, ended),
        calls=sum(seen["calls"].values()),
    )


def _rows(database: Path) -> dict[str, int]:
    """Of the tables that have any, without the one that is only the limit's."""
    listing = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'outcomes'"
    with closing(sqlite3.connect(database)) as connection:
        names = [row[0] for row in connection.execute(listing)]
        found = {
            name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608  names of tables
            for name in names
        }
    return {name: number for name, number in found.items() if number}
