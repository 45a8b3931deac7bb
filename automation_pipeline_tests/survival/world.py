"""A whole installation as real processes, in a folder of its own: what a supervisor would start, it
starts again."""

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
from automation_pipeline_tests import outside
from automation_pipeline_tests.clients.receiver import receiver
from automation_pipeline_tests.e2e.system import PATIENCE, REPOSITORY, System, kill, kill_tree
from automation_pipeline_tests.services import free_port
from automation_pipeline_tests.survival.disk import Disk
from automation_pipeline_tests.survival.plan import Profile
from automation_pipeline_tests.survival.progress import ROUTES, home_of
from automation_pipeline_tests.survival.servers import Postgres, Redis
from automation_pipeline_tests.waiting import wait_until

TOKEN = "a-machine-token-of-the-suite"
MODULE = "automation_pipeline.definitions"
STEPS = REPOSITORY / "automation_pipeline_tests" / "e2e" / "five_steps.json"
# As short as waiting for the dead may be here: a step process takes seconds to begin to beat, and
# no outage of ten seconds may end a hold.
IMPATIENCE = {
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
# So slow that a fault meets work under way. Rules of the simulator, the last ones: what is a fault
# strikes first.
SLOW_SECONDS = 1.5
SLOW = [{"route": route, "latency_seconds": SLOW_SECONDS} for route in ROUTES]
PACE = {"FICHE_FETCH_CONCURRENCY": "3", "AUDIT_RUN_CONCURRENCY": "2", "AUDIT_STEP_CONCURRENCY": "2"}
MONITORING_SECONDS = 3
FICHES_PER_DAY = 1000


class World:
    """Within `with` it works. Whoever sets `keep` finds its folder afterwards, as does who leaves
    by an exception."""

    def __init__(self, room: Path, profile: Profile, executor: str) -> None:
        self.room, self.profile, self.executor = room, profile, executor
        self._ends = ExitStack()
        self.postgres = Postgres(room) if profile is Profile.PRODUCTION else None
        self.redis = Redis(room) if profile is Profile.PRODUCTION else None
        self.disk = Disk(room / "disk") if profile is Profile.EMBEDDED else None
        self.provider = self._ends.enter_context(
            outside.simulator("--exact", "--fiches-per-day", str(FICHES_PER_DAY))
        )
        self.webhooks = self._ends.enter_context(receiver())
        url = self.postgres.url if self.postgres else f"sqlite:///{room}/disk/automation.db"
        self.database = Database(url)
        migrations.upgrade(self.database)
        self.system = System(room, url, self.provider, **self._variables())
        self.home = room / "dagster"
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
            **IMPATIENCE,
            **PACE,
            **production,
            "AUTOMATION_EXECUTOR": self.executor,
            "ELEVENLABS_BASE_URL": self.provider,
            "ELEVENLABS_API_KEY": "sim-speech-key",
            "LLM_BASE_URL": f"{self.provider}/v1",
            "LLM_API_KEY": outside.LLM_KEY,
            "TRANSCRIPTION_ELEVENLABS_RATE_LIMIT_PER_MINUTE": "6000",
            "LLM_RATE_LIMIT_PER_MINUTE": "1000000",
            "PUSHER_BASE_URL": self.provider,
            "PUSHER_CLUSTER": "eu",
            "PUSHER_APP_ID": outside.PUSHER_APP_ID,
            "PUSHER_KEY": outside.PUSHER_KEY,
            "PUSHER_SECRET": outside.PUSHER_SECRET,
            "WEBHOOK_ALLOWED_ORIGINS": self.webhooks.url,
            "API_AUTH_TOKENS": TOKEN,
            "AUTOMATION_REPORTS_DIR": str(self.room / "reports"),
        }

    def _configure_dagster(self) -> None:
        folder = REPOSITORY / "docker" if self.profile is Profile.PRODUCTION else REPOSITORY
        configured = (folder / "dagster.yaml").read_text()
        slow = "poll_interval_seconds: 15"
        assert slow in configured
        (self.home / "dagster.yaml").write_text(
            configured.replace(slow, f"poll_interval_seconds: {MONITORING_SECONDS}")
        )

    def weather(self, *rules: Mapping[str, object]) -> None:
        """What the providers do from now on, besides being slow."""
        outside.clear_faults(self.provider)
        outside.fault(self.provider, *rules, *SLOW)

    def __enter__(self) -> Self:
        try:
            self._start()
        except (
            BaseException
        ):  # whatever it is: nothing that was started is left, and the folder is kept
            self._leave(keep=True)
            raise
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._leave(keep=self.keep or error is not None)

    def _start(self) -> None:
        self.weather()
        imported = self.system.run("automation", "audit-configs", "import", str(STEPS))
        assert imported.returncode == 0, imported.stderr
        if self.profile is Profile.PRODUCTION:
            server = {"host": "127.0.0.1", "port": self.code_port, "location_name": MODULE}
            (self.room / "workspace.yaml").write_text(f"load_from:\n  - grpc_server: {server}\n")
        for role in self.commands():
            self.begin(role)
        wait_until(self.answers, PATIENCE)

    def commands(self) -> Mapping[str, list[str]]:
        """What a supervisor keeps alive."""
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

    def begin(self, role: str, *, name: str | None = None) -> None:
        with (self.room / f"{role}.log").open("ab") as log:
            self.roles[name or role] = subprocess.Popen(
                self.commands()[role],
                env=self.system.environment,
                cwd=self.room,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def supervise(self) -> None:
        """Who has ended by itself is begun again: a daemon that comes up while its database is away
        gives up."""
        for role in self.commands().keys() & self.roles.keys():
            if self.roles[role].poll() is not None:
                self.begin(role)

    def kill(self, role: str, *, whole: bool = False) -> None:
        """The process alone, so that what it has started finds out by itself; or all of it, as a
        container dies."""
        process = self.roles.pop(role)
        (kill_tree if whole else kill)(process.pid)
        process.wait()

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    def answers(self) -> bool:
        try:
            return httpx.get(
                f"{self.api_url}/health", timeout=5, verify=outside.NO_CERTIFICATES
            ).is_success
        except httpx.TransportError:
            return False

    def family(self) -> list[psutil.Process]:
        """Every process that works for this installation, whoever started it."""
        return [process for process in psutil.process_iter() if home_of(process) == str(self.home)]

    def _leave(self, *, keep: bool) -> None:
        while family := self.family():
            for process in family:
                kill(process.pid)
            psutil.wait_procs(family, timeout=60)
        for process in self.roles.values():
            process.wait()
        self._ends.close()
        self.database.dispose()
        if self.postgres and self.redis:
            self.redis.leave()
            self.postgres.leave()
        if self.disk:
            self.disk.leave(self.room / "kept" if keep else None)
        if not keep:
            shutil.rmtree(self.room, ignore_errors=True)
