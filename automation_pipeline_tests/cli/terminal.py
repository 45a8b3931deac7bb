"""Runs commands inside the test process and captures the exit code, output, and errors."""

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from automation_pipeline import bootstrap
from automation_pipeline.cli import main, progress
from automation_pipeline.core.settings import Settings, load_settings
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock

DAILY: dict[str, Any] = {
    "name": "Sales",
    "scheduleType": "DAILY",
    "timeOfDay": "02:30",
    "timezone": "Europe/Paris",
    "ficheSelection": {"mode": "manual", "ficheIds": ["1900417"]},
}

# A test process runs many commands: build the command tree only once.
cached_command_tree = cache(typer.main.get_command)


@dataclass(frozen=True)
class CommandResult:
    """`err` is the error message, also if it was printed as JSON; `error` is the parsed JSON
    document."""

    code: int
    out: str
    err: str
    error: Mapping[str, Any] | None = None


class Terminal:
    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
    ) -> None:
        self._monkeypatch, self._capsys, self.folder = monkeypatch, capsys, folder

    def export(self, **variables: str) -> None:
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)
        _clear_caches()

    def run(
        self, *arguments: str, given: bytes = b"", is_interactive: bool = False
    ) -> CommandResult:
        """With `is_interactive`, `given` contains the answers of a user."""
        stdin = io.TextIOWrapper(io.BytesIO(given))
        self._monkeypatch.setattr(stdin, "isatty", lambda: is_interactive)
        self._monkeypatch.setattr(sys, "stdin", stdin)
        self._capsys.readouterr()
        code = main.run(arguments)
        output = self._capsys.readouterr()
        if "--json" not in arguments or not output.err.startswith('{"error": '):
            return CommandResult(code, output.out, output.err)
        error = json.loads(output.err)["error"]
        sentence = (
            error["message"] if error["message"].endswith((".", "?")) else f"{error['message']}."
        )
        return CommandResult(code, output.out, f"{sentence}\n", error)

    def json(self, *arguments: str, given: object = None, code: int = 0) -> Any:
        """Return the JSON document on stdout; any other output fails the test."""
        ended = self.run(*arguments, "--json", given=json.dumps(given).encode())
        assert (ended.code, ended.err) == (code, ""), ended.err or ended.out
        return json.loads(ended.out)

    def create(self, **fields: object) -> str:
        """Create a schedule and return its ID."""
        return self.json("schedules", "create", "--file", "-", given=DAILY | fields)["id"]

    @property
    def database(self) -> Database:
        return bootstrap.services().database


def during_pauses(monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]) -> None:
    """Run one action per pause of a command that follows its work, then send Ctrl-C."""
    remaining = iter(actions)

    def pause() -> None:
        action = next(remaining, None)
        if action is None:
            raise KeyboardInterrupt
        action()

    monkeypatch.setattr(progress, "pause", pause)


def time_passes(monkeypatch: pytest.MonkeyPatch, clock: FakeClock, pauses: int) -> None:
    """Advance the clock in each pause of a command that follows its work, then send Ctrl-C."""
    monkeypatch.setattr(bootstrap.services(), "clock", clock)
    second = timedelta(seconds=progress.POLL_SECONDS)
    during_pauses(monkeypatch, *[lambda: clock.advance(second)] * pauses)


@contextmanager
def open_terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """Open a terminal in its own folder with a migrated SQLite database and no other settings."""
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    folder: Path = request.getfixturevalue("tmp_path")
    shutil.copy(request.getfixturevalue("sqlite_template"), folder / "automation.db")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(typer.main, "get_command", cached_command_tree)
    for name in [*(field.upper() for field in Settings.model_fields), "FICHE_API_URL"]:
        monkeypatch.delenv(name, raising=False)
    terminal = Terminal(monkeypatch, request.getfixturevalue("capsys"), folder)
    terminal.export(DATABASE_URL="sqlite:///automation.db", AUTOMATION_HOME=str(folder))
    yield terminal
    _clear_caches()


def _clear_caches() -> None:
    """Clear caches so that the next command reads its environment like a new process."""
    if bootstrap.services.cache_info().currsize and "database" in vars(bootstrap.services()):
        bootstrap.services().database.dispose()
    bootstrap.services.cache_clear()
    load_settings.cache_clear()
