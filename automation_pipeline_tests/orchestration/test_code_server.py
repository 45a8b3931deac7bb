"""A code server is healthy once its definitions are loaded; e2e/test_production.py covers a healthy one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from automation_pipeline.orchestration.dagster_internals import code_server_fault
from automation_pipeline_tests.services import free_port
from automation_pipeline_tests.waiting import wait_until

PROCESSES = "automation_pipeline.orchestration.processes"
SERVER = [sys.executable, "-m", "dagster", "code-server", "start", "-h", "127.0.0.1"]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a server with invalid settings."""
    server_port = free_port()
    unusable = {"DAGSTER_HOME": str(tmp_path), "AUTOMATION_MAX_PROCESSES": "several"}
    settings = {**os.environ, **unusable, "DAGSTER_GRPC_SHUTDOWN_GRACE_PERIOD": "1"}
    command = [*SERVER, "-p", str(server_port), "-m", "automation_pipeline.definitions"]
    with subprocess.Popen(
        command, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        yield server_port
        server.terminate()


def test_a_code_server_with_broken_definitions_is_reported(port: int) -> None:
    wait_until(lambda: code_server_fault(port) != f"No code server answers on port {port}.")
    fault = code_server_fault(port)
    assert fault is not None
    assert fault.startswith("The definitions do not load: ")
    assert "AUTOMATION_MAX_PROCESSES cannot be used" in fault


def test_the_health_command_fails_if_no_code_server_answers() -> None:
    port = free_port()
    command = [sys.executable, "-m", PROCESSES, "code-server", str(port)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, f"No code server answers on port {port}.\n")
