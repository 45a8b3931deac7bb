"""The API of another machine, on a socket, over the database that a test's terminal works on."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from automation_pipeline.api.app import create_app
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline_tests.api.served import served
from automation_pipeline_tests.cli.terminal import Ended, Terminal

MACHINE = "a-machine-token-for-tests"


@contextmanager
def served_over(database: Path) -> Iterator[str]:
    """Its address, for as long as the test needs it."""
    services = Services(Settings(DATABASE_URL=f"sqlite:///{database}", API_AUTH_TOKENS=MACHINE))
    with served(create_app(services)) as url:
        yield url
    services.database.dispose()


class Far:
    """The terminal of an operator who works with another machine's API."""

    def __init__(self, terminal: Terminal, url: str, token: str = MACHINE) -> None:
        self.here, self.url = terminal, url
        self._options = ("--api", url, "--token", token)

    def run(self, *words: str, **given: object) -> Ended:
        return self.here.run(*self._options, *words, **given)  # type: ignore[arg-type]

    def json(self, *words: str, given: object = None, code: int = 0):  # noqa: ANN201  JSON
        return self.here.json(*self._options, *words, given=given, code=code)

    def differences(self, commands: Iterable[str], given: object = None) -> list[str]:
        """The commands whose output, error or exit code is not the same here and by the API."""
        sent = json.dumps(given).encode()
        found: list[str] = []
        for command in commands:
            words = command.split()
            here, there = self.here.run(*words, given=sent), self.run(*words, given=sent)
            if here != there:
                found.append(f"{command}: {here} here, {there} by the API")
        return found
