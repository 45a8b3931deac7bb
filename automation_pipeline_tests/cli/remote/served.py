"""Serves the API of a remote machine over the database of the test terminal."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from automation_pipeline.api.app import create_app
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline_tests.api.served import served
from automation_pipeline_tests.cli.terminal import CommandResult, Terminal

TOKEN = "a-machine-token-for-tests"


@contextmanager
def served_over(database: Path) -> Iterator[str]:
    """Serve the API on the database and yield its URL."""
    services = Services(Settings(DATABASE_URL=f"sqlite:///{database}", API_AUTH_TOKENS=TOKEN))
    with served(create_app(services)) as url:
        yield url
    services.database.dispose()


class RemoteTerminal:
    """A terminal that runs commands through the API of a remote machine."""

    def __init__(self, terminal: Terminal, url: str, token: str = TOKEN) -> None:
        self.local, self.url = terminal, url
        self._options = ("--api", url, "--token", token)

    def run(self, *arguments: str, **given: object) -> CommandResult:
        return self.local.run(*self._options, *arguments, **given)  # type: ignore[arg-type]

    def json(self, *arguments: str, given: object = None, code: int = 0):  # noqa: ANN201  JSON
        return self.local.json(*self._options, *arguments, given=given, code=code)

    def differences(self, commands: Iterable[str], given: object = None) -> list[str]:
        """Return the commands whose output, error, or exit code differs from a local run."""
        sent = json.dumps(given).encode()
        found: list[str] = []
        for command in commands:
            arguments = command.split()
            here, there = self.local.run(*arguments, given=sent), self.run(*arguments, given=sent)
            if here != there:
                found.append(f"{command}: {here} locally, {there} through the API")
        return found
