"""The child process of `--here`: errors on exit, and cleanup."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from automation_pipeline.clients import dagster_processes
from automation_pipeline.clients.dagster_processes import LocalWorker
from automation_pipeline.core.errors import PermanentError

Start = Callable[[str], LocalWorker]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A worker whose interpreter is a shell script, and whose log lies in `tmp_path`."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = tmp_path / "interpreter"
    monkeypatch.setattr(dagster_processes, "_COMMAND", [str(script)])

    def started(commands: str) -> LocalWorker:
        script.write_text(f"#!/bin/sh\n{commands}\n", encoding="utf-8")
        script.chmod(0o700)
        return LocalWorker(["key"])

    return started


def open_files(folder: Path) -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(descriptor.readlink()))
    return [one for one in found if one.startswith(str(folder))]


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ("echo First; echo 'The last line' >&2; echo; exit 3", "The last line"),
        ("exit 3", "exit code 3"),
    ],
)
def test_an_exit_without_a_result_is_an_error_on_the_second_poll(
    start: Start, commands: str, reason: str
) -> None:
    worker = start(commands)
    worker.wait()
    worker.check()
    with pytest.raises(PermanentError, match=f"ended without a result: {reason}$"):
        worker.check()
    worker.close()


def test_closing_terminates_the_process_and_closes_its_log(start: Start, tmp_path: Path) -> None:
    worker = start("exec sleep 600")
    worker.check()
    worker.check()
    assert open_files(tmp_path)
    worker.close()
    worker.wait()
    assert open_files(tmp_path) == []
