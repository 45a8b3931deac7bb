"""The HTTP API as a process of its own, for as long as a test needs it."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager

from automation_pipeline_tests.e2e.system import BIN, System, kill_tree

SAYS = "api listening on "
TOKEN = "a-machine-token-of-the-tests"


@contextmanager
def api_server(system: System, **variables: str) -> Generator[str]:
    """Its address."""
    command = [str(BIN / "automation"), "api", "--port", "0"]
    environment = {**system.environment, "API_AUTH_TOKENS": TOKEN, **variables}
    with (system.room / "api.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=system.room, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        line = process.stdout.readline() if process.stdout else ""
        assert line.startswith(SAYS), (system.room / "api.log").read_text()
        yield line.removeprefix(SAYS).strip()
    finally:
        kill_tree(process.pid)
        process.wait()
        if process.stdout:
            process.stdout.close()
