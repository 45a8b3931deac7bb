"""A whole installation in a temporary folder: database, DAGSTER_HOME, and the processes that a test starts and ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from automation_pipeline.automation.store.runs import get_run
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
# For whatever a whole process does: it has Dagster to load first, and may be one of many.
PATIENCE = 240.0


class System:
    def __init__(self, room: Path, database_url: str, crm_url: str, **variables: str) -> None:
        self.room = room
        self.crm_url = crm_url
        home = room / "dagster"
        home.mkdir()
        (home / "dagster.yaml").write_text((REPOSITORY / "dagster.yaml").read_text())
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "DAGSTER_HOME": str(home),
            "DATABASE_URL": database_url,
            "FICHE_API_BASE_URL": crm_url,
            "FICHE_API_AUTH_TOKEN": "sim-token",
            "TRANSCRIPTION_AUDIO_ALLOWED_ORIGINS": crm_url,
            **variables,
        }

    def run(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=self.environment, cwd=self.room, input=given, capture_output=True, text=True, check=False
        )

    def automation(self, *words: str, given: str | None = None) -> dict:
        ended = self.run("automation", *words, "--json", given=given)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    def create_schedule(self, fiche_ids: Iterable[str], **fields: object) -> str:
        """One that only fetches, unless the fields say more."""
        selection = {"mode": "manual", "ficheIds": list(fiche_ids)}
        little = {"runTranscription": False, "runAudits": False}
        schedule = {"name": "e2e", "scheduleType": "MANUAL", "ficheSelection": selection, **little, **fields}
        return self.automation("schedules", "create", "--file", "-", given=json.dumps(schedule))["id"]

    def execute_job(self, schedule_id: str) -> subprocess.CompletedProcess[str]:
        config = self.room / "run.yaml"
        config.write_text(f"ops:\n  open_run:\n    config:\n      schedule_id: {schedule_id}\n")
        module = ("-m", "automation_pipeline.definitions")
        return self.run("dagster", "job", "execute", *module, "-j", "automation_run", "-c", str(config))

    def run_now(self, schedule_id: str) -> str:
        return self.automation("schedules", "run-now", schedule_id)["run_id"]

    def show_run(self, run_id: str) -> dict:
        return self.automation("runs", "show", run_id)

    def wait_for_end(self, run_id: str, seconds: float = PATIENCE) -> dict:
        wait_until(lambda: self.has_ended(run_id), seconds)
        return self.show_run(run_id)

    def has_ended(self, run_id: str) -> bool:
        """Asked of the database: to ask the command line again and again would keep a processor busy."""
        database = Database(self.environment["DATABASE_URL"])
        try:
            with database.reading() as session:
                return get_run(session, int(run_id)).completed_at is not None
        finally:
            database.dispose()

    def calls_per_fiche(self) -> Mapping[str, int]:
        ledger = httpx.get(f"{self.crm_url}/_sim/calls").json()
        return ledger["routes"].get("crm.details", {}).get("items", {})

    @contextmanager
    def daemon(self) -> Generator[subprocess.Popen[bytes]]:
        """Dagster's daemon with a code server of its own; all of it is gone at the end."""
        command = ["dagster-daemon", "run", "-m", "automation_pipeline.definitions"]
        with (self.room / "daemon.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self.environment, cwd=self.room, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
        finally:
            kill_tree(process.pid)
            process.wait()


def kill_tree(pid: int) -> None:
    """SIGKILL for a process and all that came from it, as when a host is lost."""
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
