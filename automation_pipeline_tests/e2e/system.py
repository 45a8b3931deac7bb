"""An installation as users have it: a folder, a database, settings, and processes that a test
starts and ends.

This module does not import the package. Tests use the command line, the HTTP API, `dagster job
execute`, files, and SQL with the table names of CONTRACT 5.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml
from sqlalchemy import Engine, create_engine, make_url, text

from automation_pipeline_tests import simulator_control
from automation_pipeline_tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
MODULE = "automation_pipeline.definitions"
TOKEN = "a-machine-token-of-the-tests"
# Enough for every process on a busy machine; each loads Dagster first.
TIMEOUT_SECONDS = 240.0
LOOK_EVERY_SECONDS = 0.1
LISTENING = "api listening on "
# Short intervals, which are minutes in production: a lost process is found within seconds, and sensors run
# every five seconds.
SHORT_INTERVALS = {
    "AUTOMATION_HEARTBEAT_SECONDS": "1",
    "AUTOMATION_LOST_AFTER_SECONDS": "10",
    "AUTOMATION_SENSOR_MAX_INTERVAL_SECONDS": "5",
    "AUTOMATION_TRANSCRIPTION_POLL_INTERVAL_SECONDS": "5",
    "TRANSCRIPTION_LEASE_SECONDS": "10",
    "TRANSCRIPTION_ELEVENLABS_BACKOFF_BASE_SECONDS": "0.1",
    "AUDIT_LEASE_SECONDS": "10",
    "LLM_BACKOFF_BASE_SECONDS": "0.1",
    "SHOP_TIMEOUT_SECONDS": "6",
    "PRICING_LEASE_SECONDS": "12",
}


def providers(url: str) -> dict[str, str]:
    """The simulator at this URL replaces all external systems, without rate limits."""
    return {
        "FICHE_API_BASE_URL": url,
        "FICHE_API_AUTH_TOKEN": simulator_control.TOKEN,
        "ELEVENLABS_BASE_URL": url,
        "ELEVENLABS_API_KEY": "sim-speech-key",
        "TRANSCRIPTION_AUDIO_ALLOWED_ORIGINS": url,
        "TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE": "6000",
        "LLM_BASE_URL": f"{url}/v1",
        "LLM_API_KEY": simulator_control.LLM_KEY,
        "LLM_RATE_LIMIT_PER_MINUTE": "1000000",
        "SHOP_API_BASE_URL": url,
        "SHOP_API_TOKEN": simulator_control.SHOP_TOKEN,
        "RECHERCHE_ENTREPRISES_BASE_URL": f"{url}/registries/search",
        "PUSHER_BASE_URL": url,
        "PUSHER_CLUSTER": "eu",
        "PUSHER_APP_ID": simulator_control.PUSHER_APP_ID,
        "PUSHER_KEY": simulator_control.PUSHER_KEY,
        "PUSHER_SECRET": simulator_control.PUSHER_SECRET,
    }


class System:
    """An installation with a migrated database. `variables` are added to its environment; an empty
    value unsets a variable."""

    def __init__(self, folder: Path, database_url: str, provider: str, **variables: str) -> None:
        self.folder = folder
        self.provider = provider
        self.home = folder / "dagster"
        self.home.mkdir(parents=True)
        self.configure_dagster()
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "DAGSTER_HOME": str(self.home),
            "DATABASE_URL": database_url,
            "API_AUTH_TOKENS": TOKEN,
            "AUTOMATION_REPORTS_DIR": str(folder / "reports"),
            **SHORT_INTERVALS,
            **providers(provider),
            **variables,
        }

    def configure_dagster(self, more: str = "") -> None:
        """Like the configuration in the repository, but Dagster monitors its runs every three
        seconds."""
        configured, slow = (REPOSITORY / "dagster.yaml").read_text(), "poll_interval_seconds: 15"
        assert slow in configured
        (self.home / "dagster.yaml").write_text(
            configured.replace(slow, "poll_interval_seconds: 3") + more
        )

    def run(
        self, *words: str, given: str | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; it may fail. `variables` apply only to this command."""
        return subprocess.run(
            words,
            env={**self.environment, **variables},
            cwd=self.folder,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )

    def start(self, *words: str, log: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a command in its own process group. Its output goes to the file `log` in the
        folder."""
        with (self.folder / log).open("ab") as file:
            return subprocess.Popen(
                words,
                env={**self.environment, **variables},
                cwd=self.folder,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def automation(self, *words: str, given: str | None = None) -> Any:  # Any: whatever JSON holds
        """The JSON output of a command, which must succeed."""
        ended = self.run("automation", *words, "--json", given=given)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    def job_command(self, job: str, *more: str, **ops: Mapping[str, object]) -> list[str]:
        """The command that executes a job with the configuration of its ops."""
        config = (
            {"ops": {op: {"config": dict(values)} for op, values in ops.items()}} if ops else {}
        )
        path = self.folder / f"{job}-{len(list(self.folder.glob('*.yaml')))}.yaml"
        path.write_text(yaml.safe_dump(config))
        return ["dagster", "job", "execute", "-m", MODULE, "-j", job, "-c", str(path), *more]

    def execute(
        self, job: str, *more: str, **ops: Mapping[str, object]
    ) -> subprocess.CompletedProcess[str]:
        """Run `dagster job execute`."""
        return self.run(*self.job_command(job, *more, **ops))

    def execute_job(self, schedule_id: str) -> subprocess.CompletedProcess[str]:
        return self.execute("automation_run", open_run={"schedule_id": int(schedule_id)})

    def create_schedule(self, fiche_ids: Iterable[str] = (), **fields: object) -> str:
        """By default, runs of the schedule only fetch the fiches."""
        return self.automation(
            "schedules", "create", "--file", "-", given=json.dumps(schedule(fiche_ids, **fields))
        )["id"]

    def run_now(self, schedule_id: str) -> str:
        return self.automation("schedules", "run-now", schedule_id)["run_id"]

    def show_run(self, run_id: str) -> dict[str, Any]:
        """With the outcomes of its fiches."""
        return self.automation("runs", "show", run_id)

    def wait_for_end(self, run_id: str, seconds: float = TIMEOUT_SECONDS) -> dict[str, Any]:
        self.wait_for(
            "SELECT 1 FROM automation_runs WHERE id = :id AND completed_at IS NOT NULL",
            seconds,
            id=run_id,
        )
        return self.show_run(run_id)

    def wait_for(
        self, statement: str, seconds: float = TIMEOUT_SECONDS, **values: object
    ) -> list[dict[str, Any]]:
        """Wait until the query returns rows, and return them."""
        found: list[dict[str, Any]] = []

        def is_found() -> bool:
            found[:] = self.sql(statement, **values)
            return bool(found)

        wait_until(is_found, seconds, every=LOOK_EVERY_SECONDS)
        return found

    def sql(self, statement: str, **values: object) -> list[dict[str, Any]]:
        """Execute a statement in its own transaction, and return its rows."""
        with self._engine.begin() as connection:
            result = connection.execute(
                text(statement), {name: _id(value) for name, value in values.items()}
            )
            return [dict(row) for row in result.mappings()] if result.returns_rows else []

    @cached_property
    def _engine(self) -> Engine:
        url = make_url(self.environment["DATABASE_URL"])
        return create_engine(
            url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url
        )

    def close(self) -> None:
        self._engine.dispose()

    def calls(self, route: str, **wanted: str) -> Mapping[str, int]:
        """The number of calls of the simulator for each item."""
        answer = httpx.get(
            f"{self.provider}/_sim/calls", params=wanted, verify=simulator_control.NO_CERTIFICATES
        )
        return answer.raise_for_status().json()["routes"].get(route, {}).get("items", {})

    @contextmanager
    def daemon(self) -> Generator[subprocess.Popen[bytes]]:
        """Run Dagster's daemon with its code server. All processes are killed at the end."""
        with self.running("dagster-daemon", "run", "-m", MODULE, log="daemon.log") as process:
            yield process

    @contextmanager
    def running(
        self, *words: str, log: str, **variables: str
    ) -> Generator[subprocess.Popen[bytes]]:
        process = self.start(*words, log=log, **variables)
        try:
            yield process
        finally:
            kill_tree(process.pid)
            process.wait()

    @contextmanager
    def api(self, **variables: str) -> Generator[httpx.Client]:
        """Run the HTTP API in a process, and yield a client."""
        log = self.folder / "api.log"
        with self.running(
            str(BIN / "automation"), "api", "--port", "0", log=log.name, **variables
        ) as process:
            wait_until(
                lambda: LISTENING in log.read_text() or process.poll() is not None,
                TIMEOUT_SECONDS,
                every=0.1,
            )
            assert LISTENING in log.read_text(), log.read_text()
            url = log.read_text().rpartition(LISTENING)[2].split()[0]
            headers = {"Authorization": f"Bearer {TOKEN}"}
            with httpx.Client(
                base_url=url,
                headers=headers,
                timeout=TIMEOUT_SECONDS,
                verify=simulator_control.NO_CERTIFICATES,
            ) as client:
                yield client


class Installation(System):
    """A system with a client of its running API. It creates schedules and runs over HTTP, which is
    much faster than a command."""

    http: httpx.Client | None = None

    @contextmanager
    def serving(self) -> Generator["Installation"]:
        """Run the daemon, the code server and the API."""
        with self.daemon(), self.api() as client:
            wait_until(lambda: client.get("/health/ready").is_success, TIMEOUT_SECONDS, every=0.5)
            yield self

    @contextmanager
    def api(self, **variables: str) -> Generator[httpx.Client]:
        with super().api(**variables) as client:
            self.http = client
            yield client
            self.http = None

    @property
    def client(self) -> httpx.Client:
        assert self.http, "no API is at work: `with system.api():`"
        return self.http

    def get(self, path: str, **wanted: object) -> Any:  # Any: whatever JSON holds
        """The data of the answer, which must be a success."""
        return data(
            self.client.get(path, params={name: str(value) for name, value in wanted.items()})
        )

    def post(self, path: str, **body: object) -> Any:  # Any: whatever JSON holds
        return data(self.client.post(path, json=body))

    def create_schedule(self, fiche_ids: Iterable[str] = (), **fields: object) -> str:
        if self.http is None:
            return super().create_schedule(fiche_ids, **fields)
        return self.post("/api/automation/schedules", **schedule(fiche_ids, **fields))["id"]

    def run_now(self, schedule_id: str) -> str:
        if self.http is None:
            return super().run_now(schedule_id)
        return str(self.post("/api/automation/trigger", scheduleId=schedule_id)["run_id"])

    def show_run(self, run_id: str) -> dict[str, Any]:
        """With the outcomes of its fiches."""
        if self.http is None:
            return super().show_run(run_id)
        path = f"/api/automation/runs/{run_id}"
        return {**self.get(path), "fiches": self.get(f"{path}/fiches", limit=1000)}


def schedule(fiche_ids: Iterable[str], **fields: object) -> dict[str, object]:
    selection = {"mode": "manual", "ficheIds": list(fiche_ids)}
    fetching_only = {"runTranscription": False, "runAudits": False}
    return {
        "name": "A story",
        "scheduleType": "MANUAL",
        "ficheSelection": selection,
        **fetching_only,
        **fields,
    }


def data(answer: httpx.Response) -> Any:  # Any: whatever JSON holds
    assert answer.is_success, (
        f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:2000]}"
    )
    document = answer.json()
    return document.get("data", document) if isinstance(document, dict) else document


def _id(value: object) -> object:
    """Ids are strings in JSON and numbers in the database."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants with SIGKILL, like the loss of a host."""
    try:
        parent = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return
    family = [*parent.children(recursive=True), parent]
    for member in family:
        kill(member.pid)
    psutil.wait_procs(family, timeout=60)


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
