"""The programs behind `make demo` and `make dev`, as a person starts them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from automation_pipeline_tests.e2e.system import BIN, PATIENCE, REPOSITORY, kill_tree
from automation_pipeline_tests.services import free_port
from automation_pipeline_tests.waiting import wait_until

SENSORS = '{sensorsOrError(repositorySelector:{repositoryName:"__repository__",repositoryLocationName:"%s"})'
SENSORS += "{... on Sensors{results{name sensorState{status}}}}}"


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    for name in ("dagster.yaml", "workspace.yaml"):
        (tmp_path / name).write_text((REPOSITORY / name).read_text())
    (tmp_path / "home" / "dagster.yaml").symlink_to(tmp_path / "dagster.yaml")
    return tmp_path


def environment(room: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "DAGSTER_HOME": str(room / "home")}


def test_the_demo_ends_well_and_says_where_the_report_is(room: Path) -> None:
    demo = [sys.executable, str(REPOSITORY / "demo" / "run.py")]
    ended = subprocess.run(demo, cwd=room, env=environment(room), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"24 selected = \d+ successful \+ \d failed \+ 1 ignored", ended.stdout)
    assert "audited by" in ended.stdout
    assert (room / ".automation/demo/run-1.html").exists()


@pytest.fixture
def dev(room: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    port = free_port()
    ports = ["--port", str(port), "--simulator-port", "0", "--api-port", "0"]
    command = [sys.executable, str(REPOSITORY / "demo" / "dev.py"), *ports]
    process = subprocess.Popen(command, cwd=room, env=environment(room), stdout=subprocess.PIPE, text=True)
    yield process, f"http://127.0.0.1:{port}"
    kill_tree(process.pid)
    process.wait()


def test_one_terminal_runs_everything_and_one_ctrl_c_ends_it(
    dev: tuple[subprocess.Popen[str], str], room: Path
) -> None:
    process, ui = dev

    def sensors() -> dict[str, str]:
        try:
            answer = httpx.post(f"{ui}/graphql", json={"query": SENSORS % "automation_pipeline.definitions"}).json()
        except httpx.TransportError:
            return {}
        results = answer["data"]["sensorsOrError"].get("results", [])
        return {sensor["name"]: sensor["sensorState"]["status"] for sensor in results}

    # All of them, each running: their names are in test_definitions.py.
    wait_until(lambda: len(sensors()) > 5 and set(sensors().values()) == {"RUNNING"}, PATIENCE)

    assert process.stdout is not None
    told = next(
        found for line in process.stdout if (found := re.search(r"API_URL=(\S+) AUTOMATION_API_TOKEN=(\S+)", line))
    )
    far = [str(BIN / "automation"), "--api", told[1], "--token", told[2], "schedules", "list", "--json"]
    listed = subprocess.run(far, cwd=room, env=environment(room), capture_output=True, text=True, check=False)
    assert (listed.returncode, listed.stderr, "schedules" in listed.stdout) == (0, "", True)
    assert httpx.get(f"{told[1]}/health").status_code == 200
    # Dagster's daemon beats while it relays.
    wait_until(lambda: httpx.get(f"{told[1]}/health/ready").status_code == 200, PATIENCE)

    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0
    gone, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
    assert gone
