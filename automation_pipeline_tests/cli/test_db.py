"""Preparing the database from the command line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from automation_pipeline import migrations
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal

NEWEST = migrations.revisions()[-1]


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        terminal.export(DATABASE_URL="sqlite:///made/new.db")
        yield terminal


def test_upgrading_an_empty_database_twice_has_no_further_effect(
    terminal: Terminal,
) -> None:
    assert terminal.json("db", "current") == {"revision": None}
    assert terminal.json("db", "upgrade") == {"before": None, "revision": NEWEST}
    assert terminal.json("db", "upgrade") == {"before": NEWEST, "revision": NEWEST}
    assert terminal.json("db", "current") == {"revision": NEWEST}


def test_text_output_is_in_sentences(terminal: Terminal) -> None:
    output = [
        terminal.run("db", command).out for command in ("current", "upgrade", "upgrade", "current")
    ]
    missing = terminal.folder / "made" / "new.db"
    assert output == [
        f"There is no database at {missing}: run `automation db upgrade`.\n",
        f"Created {missing} at {NEWEST}.\n",
        f"The database is at {NEWEST}.\n",
        f"{NEWEST}\n",
    ]


def test_a_second_upgrade_keeps_stored_data(terminal: Terminal) -> None:
    terminal.run("db", "upgrade")
    schedule_id = terminal.create()
    terminal.run("db", "upgrade")
    assert terminal.json("schedules", "show", schedule_id)["name"] == "Sales"


@pytest.fixture
def bare(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Without DATABASE_URL and AUTOMATION_HOME, in an empty folder, with a user's data directory in
    the directory."""
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.delenv("AUTOMATION_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(terminal.folder / "data"))
    go(monkeypatch, terminal.folder / "empty")
    terminal.export()
    return terminal


def go(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_commands_that_read_create_nothing_and_name_the_database_that_is_missing(
    bare: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 9.6: each command left an empty database in the working directory."""
    missing = bare.folder / "data/automation-pipeline/.automation/automation.db"
    sentence = f"There is no database at {missing}: run `automation db upgrade`.\n"
    before = files_below(bare.folder)
    asked = (
        "schedules list",
        "runs show 1",
        "api --port 0",
        "db backup copy.db",
        "tokens list --json",
    )
    ended = {words: bare.run(*words.split()) for words in asked}
    found = {words: (one.code, one.out, one.err) for words, one in ended.items()}
    assert found == dict.fromkeys(asked, (1, "", sentence))
    assert ended["tokens list --json"].error is not None
    assert bare.run("db", "current").out == sentence
    assert bare.json("db", "current") == {"revision": None}
    checks = {
        check["name"]: check for check in json.loads(bare.run("doctor", "--json").out)["checks"]
    }
    assert (checks["database"]["state"], f"{checks['database']['detail']}\n") == (
        "failed",
        sentence,
    )
    go(monkeypatch, bare.folder)
    assert bare.run("db", "restore", "empty").code == 2
    assert files_below(bare.folder) == before


def test_the_project_database_is_used_from_any_directory(
    bare: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, other = bare.folder / "project", bare.folder / "other"
    for folder in (project, other):
        go(monkeypatch, folder)
        (folder / "workspace.yaml").touch()
    made = project / ".automation" / "automation.db"
    for folder in (project / "a", project / "b" / "c", project):
        go(monkeypatch, folder)
        bare.export()
        assert bare.json("db", "current")["revision"] == (NEWEST if made.exists() else None)
        bare.run("db", "upgrade")
    assert made.stat().st_mode & 0o777 == 0o600
    for folder in (other, bare.folder / "empty"):
        go(monkeypatch, folder)
        bare.export(AUTOMATION_HOME="../project")
        assert bare.json("db", "current") == {"revision": NEWEST}
    bare.export(AUTOMATION_HOME="")
    assert bare.run("db", "upgrade").out == (
        f"Created {bare.folder}/data/automation-pipeline/.automation/automation.db at {NEWEST}.\n"
    )
    assert not files_below(bare.folder / "empty")
    assert not (other / ".automation").exists()


def test_a_home_that_is_a_file_is_reported_in_one_sentence(bare: Terminal) -> None:
    bare.export(AUTOMATION_HOME=str(bare.folder / "automation.db"))
    ended = bare.run("schedules", "list")
    assert (ended.code, ended.err) == (
        2,
        "AUTOMATION_HOME cannot be used: it must be a folder that this user can open.\n",
    )
