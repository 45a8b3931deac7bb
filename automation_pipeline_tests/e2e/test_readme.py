"""Executes the blocks of README verbatim and in order: in one shell, in a clone, on the default
ports."""

import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from automation_pipeline_tests.e2e.system import BIN, REPOSITORY, TIMEOUT_SECONDS, kill_tree

README = REPOSITORY / "README.md"
PORTS = {4010: "the simulator", 3000: "Dagster's UI", 3002: "the HTTP API"}
# First lines of blocks that are not executed, because they need external systems or a container
# engine.
NOT_RUN = [
    "export FICHE_API_BASE_URL=https://crm.example.net FICHE_API_AUTH_TOKEN=...   # your CRM gateway",
    "cd docker && cp .env.example .env      # two passwords, and your providers",
]
OF_THE_SHELL = ("PATH", "HOME", "LANG", "TERM", "TMPDIR", "USER")
# Like a shell at a terminal: a background process is a job with its own signals. A
# failure ends it.
AT_A_TERMINAL = "set -o monitor -o errexit -o pipefail"


def blocks(info: str) -> list[str]:
    return re.findall(
        rf"^```{info}\n(.*?)^```$", README.read_text(), flags=re.DOTALL | re.MULTILINE
    )


@contextmanager
def default_ports() -> Iterator[None]:
    """Only one such test may run on this machine, and nothing else may use the ports."""
    with (Path(tempfile.gettempdir()) / "automation-readme.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for port, what in PORTS.items():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    pytest.fail(
                        f"README starts {what} on port {port}, and something else listens there: end it first."
                    )
        yield


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files under version control, with the environment of the tests, which has the pins of
    requirements.lock."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    clone = tmp_path / "clone"
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, clone / name)
    # `make` would install them again if they were newer.
    for name in (
        "requirements.lock",
        "pyproject.toml",
    ):
        os.utime(clone / name, (0, 0))
    (clone / ".venv").symlink_to(sys.prefix)
    (clone / ".venv" / "ready").touch()
    return clone


def test_every_block_of_the_readme_is_executed_or_listed_as_exempt() -> None:
    assert [block.splitlines()[0] for block in blocks("bash")] == NOT_RUN
    fences = re.findall(r"^```(\w*)$", README.read_text(), flags=re.MULTILINE)
    assert set(fences[::2]) == {"sh", "text", "bash"}


@pytest.mark.timeout(1500)
def test_the_commands_of_the_readme_have_the_documented_results(clone: Path) -> None:
    script = "\n".join(
        [
            AT_A_TERMINAL,
            *(f"echo '### block {n}'\n{block}" for n, block in enumerate(blocks("sh"), 1)),
        ]
    )
    (clone / "tour.sh").write_text(script)
    environment = {name: os.environ[name] for name in OF_THE_SHELL if name in os.environ}
    with default_ports(), (clone / "tour.log").open("wb") as log:
        shell = subprocess.Popen(
            ["bash", "tour.sh"],
            cwd=clone,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            ended = shell.wait(4 * TIMEOUT_SECONDS)
        finally:
            left = [process for process in psutil.process_iter() if is_of(clone, process)]
            kill_tree(shell.pid)
            for process in left:
                kill_tree(process.pid)
    printed = (clone / "tour.log").read_text()
    logs = "".join(
        (clone / ".automation" / f"{name}.log").read_text()[-2000:] for name in ("run", "api")
    )
    assert ended == 0, printed[-6000:] + logs
    assert [process.cmdline() for process in left if process.is_running()] == [], (
        "the last block stops everything"
    )
    assert_as_the_text_says(clone, printed)


def assert_as_the_text_says(clone: Path, printed: str) -> None:
    assert re.search(r"24 selected = \d+ successful \+ \d failed \+ 1 ignored", printed), printed
    for run_id in ("1", "2"):
        run = answer(clone, "runs", "show", run_id)
        assert (run["status"], run["successfulFiches"], run["auditsRun"]) == ("completed", 3, 3)
    audits = answer(clone, "audits", "list")["audits"]
    assert len(audits) == 4, audits
    assert {audit["status"] for audit in audits} == {"completed"}
    assert all(audit["niveau"] for audit in audits), "every audit was judged"
    [prices] = answer(clone, "pricing", "runs", "list")["runs"]
    assert (prices["status"], prices["rollbackState"]) == ("ROLLED_BACK", "DONE"), prices
    assert re.search(r"552032534 +SUCCESS", printed), printed


def answer(clone: Path, *words: str) -> dict:
    command = [str(BIN / "automation"), *words, "--json"]
    ended = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def is_of(clone: Path, process: psutil.Process) -> bool:
    try:
        return process.cwd() == str(clone)
    except psutil.Error:
        return False
