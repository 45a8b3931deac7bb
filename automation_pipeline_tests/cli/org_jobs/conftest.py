"""Fixtures: a wide terminal, with or without an organisation."""

from collections.abc import Iterator

import pytest

from automation_pipeline.cli.output import screen
from automation_pipeline_tests.cli.org_jobs.commands import OrgJobsCommands
from automation_pipeline_tests.cli.terminal import open_terminal


@pytest.fixture
def without_org(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OrgJobsCommands]:
    """Return the commands on a database without organisations."""
    monkeypatch.setattr(screen, "_width", 300)  # pytest-xdist sets COLUMNS before this fixture runs
    with open_terminal(request) as terminal:
        terminal.export(LOGNAME="ada")
        yield OrgJobsCommands(terminal)


@pytest.fixture
def org_jobs(without_org: OrgJobsCommands) -> OrgJobsCommands:
    without_org.org()
    return without_org
