"""Preparing the database from the command line."""

from collections.abc import Iterator

import pytest

from automation_pipeline import migrations
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal

NEWEST = migrations.revisions()[-1]


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        terminal.export(DATABASE_URL="sqlite:///made/new.db")
        yield terminal


def test_an_empty_database_is_brought_to_the_newest_revision_and_again_is_nothing(terminal: Terminal) -> None:
    assert terminal.json("db", "current") == {"revision": None}
    assert terminal.json("db", "upgrade") == {"before": None, "revision": NEWEST}
    assert terminal.json("db", "upgrade") == {"before": NEWEST, "revision": NEWEST}
    assert terminal.json("db", "current") == {"revision": NEWEST}


def test_the_same_in_sentences(terminal: Terminal) -> None:
    said = [terminal.run("db", command).out for command in ("current", "upgrade", "upgrade", "current")]
    assert said == [
        "The database is empty: run `automation db upgrade`.\n",
        f"Upgraded from empty to {NEWEST}.\n",
        f"The database is at {NEWEST}.\n",
        f"{NEWEST}\n",
    ]


def test_what_was_stored_survives_another_upgrade(terminal: Terminal) -> None:
    terminal.run("db", "upgrade")
    schedule_id = terminal.create()
    terminal.run("db", "upgrade")
    assert terminal.json("schedules", "show", schedule_id)["name"] == "Sales"
