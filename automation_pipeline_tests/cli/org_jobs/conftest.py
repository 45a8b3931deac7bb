"""A terminal that is wide enough, with one organisation."""

from collections.abc import Iterator

import pytest

from automation_pipeline.cli.output import screen
from automation_pipeline_tests.cli.org_jobs.counter import Counter
from automation_pipeline_tests.cli.terminal import open_terminal


@pytest.fixture
def bare(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    """Without any organisation."""
    monkeypatch.setattr(screen, "_width", 300)  # pytest-xdist sets COLUMNS before it is there
    with open_terminal(request) as terminal:
        terminal.export(LOGNAME="ada")
        yield Counter(terminal)


@pytest.fixture
def counter(bare: Counter) -> Counter:
    bare.org()
    return bare
