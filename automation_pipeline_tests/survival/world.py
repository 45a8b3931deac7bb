"""A whole installation as real processes in its own folder, with a supervisor that restarts
them."""

import shutil
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import httpx
import psutil

from automation_pipeline import migrations
from automation_pipeline.storage.database import Database
from automation_pipeline_tests import simulator_control
from automation_pipeline_tests.clients.receiver import receiver
from automation_pipeline_tests.e2e.system import (
    REPOSITORY,
    TIMEOUT_SECONDS,
    System,
    kill,
    kill_tree,
)
from automation_pipeline_tests.services import free_port
from automation_pipeline_tests.survival.disk import Disk
from automation_pipeline_tests.survival.plan import Profile
from automation_pipeline_tests.survival.progress import ROUTES, home_of
from automation_pipeline_tests.survival.servers import Postgres, Redis
from automation_pipeline_tests.waiting import wait_until

TOKEN = "a-machine-token-of-the-suite"
MODULE = "automation_pipeline.definitions"
STEPS = REPOSITORY / "automation_pipeline_tests" / "e2e" / "five_steps.json"
# The shortest useful limits: a step process needs seconds until its first heartbeat, and an outage of
# ten seconds must not end a claim.
SHORT_WAITS = {
    "AUTOMATION_HEARTBEAT_SECONDS": "1",
    "AUTOMATION_LOST_AFTER_SECONDS": "20",
    "TRANSCRIPTION_LEASE_SECONDS": "20",
    "AUDIT_LEASE_SECONDS": "20",
    "AUDIT_MAX_WAIT_SECONDS": "60",
    "TRANSCRIPTION_ELEVENLABS_BACKOFF_BASE_SECONDS": "0.1",
    "LLM_BACKOFF_BASE_SECONDS": "0.1",
    "LLM_MAX_ATTEMPTS": "8",
    "AUTOMATION_TRANSCRIPTION_POLL_INTERVAL_SECONDS": "5",
}
# Slow enough that a fault affects work in progress. The last rules of the simulator, because the first
# rule that matches applies.
SLOW_SECONDS = 1.5
SLOW = [{"route": route, "latency_seconds": SLOW_SECONDS} for route in ROUTES]
PACE = {"FICHE_FETCH_CONCURRENCY": "3", "AUDIT_RUN_CONCURRENCY": "2", "AUDIT_STEP_CONCURRENCY": "2"}
MONITORING_SECONDS = 3
FICHES_PER_DAY = 1000


class World:
    """A context manager. With `keep`, or after an exception, the folder stays."""

    def __init__(self, folder: Path, profile: Profile, executor: str) -> None:
        self.folder, self.profile, self.executor = folder, profile, executor
        self._ends = ExitStack()
        self.postgres = Postgres(folder) if profile is Profile.PRODUCTION else None
        self.redis = Redis(folder) if profile is Profile.PRODUCTION else None
        self.disk = Disk(folder / "disk") if profile is Profile.EMBEDDED else None
        self.provider = self._ends.enter_context(
            simulator_control.running_simulator("--exact", "--fiches-per-day", str(FICHES_PER_DAY))
        )
        self.webhooks = self._ends.enter_context(receiver())
        url = self.postgres.url if self.postgres else f"sqlite:///{folder}/disk/automation.db"
        self.database = Database(url)
        migrations.upgrade(self.database)
        self.system = System(folder, url, self.provider, **self._variables())
        self.home = folder / "dagster"
        self._configure_dagster()
        self.api_port, self.code_port = free_port(), free_port()
        self.roles: dict[str, subprocess.Popen[bytes]] = {}
        self.keep = False

    def _variables(self) -> Mapping[str, str]:
        production = {}
        if self.postgres and self.redis:
            production = {
                "DAGSTER_POSTGRES_URL": self.postgres.dagster_url,
                "REDIS_URL": self.redis.url,
                "AUTOMATION_CELERY_BROKER_URL": self.redis.broker_url,
                "AUTOMATION_MAX_PROCESSES": "4",
            }
        return {
            **SHORT_WAITS,
            **PACE,
            **production,
            "AUTOMATION_EXECUTOR": self.executor,
            "ELEVENLABS_BASE_URL": self.provider,
            "ELEVENLABS_API_KEY": "sim-speech-key",
            "LLM_BASE_URL": f"{self.provider}/v1",
            "LLM_API_KEY": simulator_control.LLM_KEY,
            "TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE": "6000",
            "LLM_RATE_LIMIT_PER_MINUTE": "1000000",
            "PUSHER_BASE_URL": self.provider,
            "PUSHER_CLUSTER": "eu",
            "PUSHER_APP_ID": simulator_control.PUSHER_APP_ID,
            "PUSHER_KEY": simulator_control.PUSHER_KEY,
            "PUSHER_SECRET": simulator_control.PUSHER_SECRET,
            "WEBHOOK_ALLOWED_ORIGINS": self.webhooks.url,
            "API_AUTH_TOKENS": TOKEN,
            "AUTOMATION_REPORTS_DIR": str(self.folder / "reports"),
        }

    def _configure_dagster(self) -> None:
        folder = REPOSITORY / "docker" if self.profile is Profile.PRODUCTION else REPOSITORY
        configured = (folder / "dagster.yaml").read_text()
        slow = "poll_interval_seconds: 15"
        assert slow in configured
        (self.home / "dagster.yaml").write_text(
            configured.replace(slow, f"poll_interval_seconds: {MONITORING_SECONDS}")
        )

    def set_provider_faults(self, *rules: Mapping[str, object]) -> None:
        """Set the faults of the providers, which stay slow."""
        simulator_control.clear_faults(self.provider)
        simulator_control.add_faults(self.provider, *rules, *SLOW)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:  # after any error, end all processes and keep the folder
            self._remove(keep=True)
            raise
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._remove(keep=self.keep or error is not None)

    def _start(self) -> None:
        self.set_provider_faults()
        imported = self.system.run("automation", "audit-configs", "import", str(STEPS))
        assert imported.returncode == 0, imported.stderr
        if self.profile is Profile.PRODUCTION:
            server = {"host": "127.0.0.1", "port": self.code_port, "location_name": MODULE}
            (self.folder / "workspace.yaml").write_text(f"load_from:\n  - grpc_server: {server}\n")
        for role in self.commands():
            self.start_role(role)
        wait_until(self.answers, TIMEOUT_SECONDS)

    def commands(self) -> Mapping[str, list[str]]:
        """The commands that the supervisor keeps running."""
        api = ["automation", "api", "--port", str(self.api_port)]
        if self.profile is Profile.EMBEDDED:
            return {"api": api, "daemon": ["dagster-daemon", "run", "-m", MODULE]}
        served = ["-h", "127.0.0.1", "-p", str(self.code_port)]
        workers = ("celery-1", "celery-2") if self.executor == "celery" else ()
        return {
            "api": api,
            "code-server": ["dagster", "code-server", "start", *served, "-m", MODULE],
            "daemon": ["dagster-daemon", "run", "-w", "workspace.yaml"],
            **{
                name: ["automation", "worker", "--name", f"{name}@%h", "--concurrency", "2"]
                for name in workers
            },
        }

    def start_role(self, role: str, *, name: str | None = None) -> None:
        with (self.folder / f"{role}.log").open("ab") as log:
            self.roles[name or role] = subprocess.Popen(
                self.commands()[role],
                env=self.system.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def supervise(self) -> None:
        """Restart processes that ended, such as a daemon that started during an outage of its
        database."""
        for role in self.commands().keys() & self.roles.keys():
            if self.roles[role].poll() is not None:
                self.start_role(role)

    def kill(self, role: str, *, whole: bool = False) -> None:
        """Kill the process alone, or `whole` with its children, as a container ends."""
        process = self.roles.pop(role)
        (kill_tree if whole else kill)(process.pid)
        process.wait()

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    def answers(self) -> bool:
        try:
            return httpx.get(
                f"{self.api_url}/health", timeout=5, verify=simulator_control.NO_CERTIFICATES
            ).is_success
        except httpx.TransportError:
            return False

    def processes(self) -> list[psutil.Process]:
        """Every process of this installation."""
        return [process for process in psutil.process_iter() if home_of(process) == str(self.home)]

    def _remove(self, *, keep: bool) -> None:
        while processes := self.processes():
            for process in processes:
                kill(process.pid)
            psutil.wait_procs(processes, timeout=60)
        for process in self.roles.values():
            process.wait()
        self._ends.close()
        self.database.dispose()
        if self.postgres and self.redis:
            self.redis.remove()
            self.postgres.remove()
        if self.disk:
            self.disk.remove(self.folder / "kept" if keep else None)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
