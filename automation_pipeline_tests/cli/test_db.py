"""Tests of `automation db`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from automation_pipeline import migrations
from automation_pipeline.storage import backups
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
    (terminal.folder / "empty.db").touch()
    terminal.export(DATABASE_URL="sqlite:///empty.db")
    assert terminal.run("db", "current").out == (
        "The database is empty: run `automation db upgrade`.\n"
    )
    assert terminal.run("db", "upgrade").out == f"Upgraded from empty to {NEWEST}.\n"


def test_a_second_upgrade_keeps_stored_data(terminal: Terminal) -> None:
    terminal.run("db", "upgrade")
    schedule_id = terminal.create()
    terminal.run("db", "upgrade")
    assert terminal.json("schedules", "show", schedule_id)["name"] == "Sales"


@pytest.fixture
def unconfigured(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Unset DATABASE_URL and AUTOMATION_HOME in an empty folder that holds the user data
    directory."""
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.delenv("AUTOMATION_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(terminal.folder / "data"))
    change_directory(monkeypatch, terminal.folder / "empty")
    terminal.export()
    return terminal


def change_directory(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_commands_that_read_create_nothing_and_name_the_database_that_is_missing(
    unconfigured: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each command left an empty database in the working directory."""
    missing = unconfigured.folder / "data/automation-pipeline/.automation/automation.db"
    sentence = f"There is no database at {missing}: run `automation db upgrade`.\n"
    before = files_below(unconfigured.folder)
    commands = (
        "schedules list",
        "runs show 1",
        "api --port 0",
        "db backup copy.db",
        "tokens list --json",
    )
    ended = {arguments: unconfigured.run(*arguments.split()) for arguments in commands}
    found = {arguments: (one.code, one.out, one.err) for arguments, one in ended.items()}
    assert found == dict.fromkeys(commands, (1, "", sentence))
    assert ended["tokens list --json"].error is not None
    assert unconfigured.run("db", "current").out == sentence
    assert unconfigured.json("db", "current") == {"revision": None}
    checks = {
        check["name"]: check
        for check in json.loads(unconfigured.run("doctor", "--json").out)["checks"]
    }
    assert (checks["database"]["state"], f"{checks['database']['detail']}\n") == (
        "failed",
        sentence,
    )
    change_directory(monkeypatch, unconfigured.folder)
    assert unconfigured.run("db", "restore", "empty").code == 2
    assert files_below(unconfigured.folder) == before


def test_the_project_database_is_used_from_any_directory(
    unconfigured: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, other = unconfigured.folder / "project", unconfigured.folder / "other"
    for folder in (project, other):
        change_directory(monkeypatch, folder)
        (folder / "workspace.yaml").touch()
    made = project / ".automation" / "automation.db"
    for folder in (project / "a", project / "b" / "c", project):
        change_directory(monkeypatch, folder)
        unconfigured.export()
        assert unconfigured.json("db", "current")["revision"] == (NEWEST if made.exists() else None)
        unconfigured.run("db", "upgrade")
    assert made.stat().st_mode & 0o777 == 0o600
    for folder in (other, unconfigured.folder / "empty"):
        change_directory(monkeypatch, folder)
        unconfigured.export(AUTOMATION_HOME="../project")
        assert unconfigured.json("db", "current") == {"revision": NEWEST}
    unconfigured.export(AUTOMATION_HOME="")
    assert unconfigured.run("db", "upgrade").out == (
        f"Created {unconfigured.folder}/data/automation-pipeline/.automation/automation.db at {NEWEST}.\n"
    )
    assert not files_below(unconfigured.folder / "empty")
    assert not (other / ".automation").exists()


def test_a_home_that_is_a_file_is_reported_in_one_sentence(unconfigured: Terminal) -> None:
    unconfigured.export(AUTOMATION_HOME=str(unconfigured.folder / "automation.db"))
    ended = unconfigured.run("schedules", "list")
    assert (ended.code, ended.err) == (
        2,
        "AUTOMATION_HOME cannot be used: it must be a folder that this user can open.\n",
    )


def test_a_backup_replaces_the_database_only_with_force(terminal: Terminal) -> None:
    terminal.export(DATABASE_URL="sqlite:///automation.db")
    schedule_id = terminal.create()
    copied = terminal.run("db", "backup", "copy.db")
    size = (terminal.folder / "copy.db").stat().st_size
    assert (copied.out, copied.err) == (
        f"The database is copied to copy.db, {size:,} bytes.\n",
        "",
    )
    refused = terminal.run("db", "backup", "copy.db")
    assert (refused.code, refused.err) == (
        2,
        "copy.db exists already: add --force to overwrite it.\n",
    )
    assert terminal.json("db", "backup", "copy.db", "--force") == {"file": "copy.db", "bytes": size}
    terminal.run("schedules", "delete", schedule_id, "--yes")
    refused = terminal.run("db", "restore", "copy.db")
    assert (refused.code, refused.err) == (
        2,
        "The database is not empty: add --force to overwrite it.\n",
    )
    assert terminal.json("schedules", "list") == {"schedules": []}
    assert terminal.json("db", "restore", "copy.db", "--force") == {
        "file": "copy.db",
        "revision": NEWEST,
    }
    assert terminal.json("schedules", "show", schedule_id)["name"] == "Sales"
    terminal.export(DATABASE_URL="sqlite:///made/new.db")
    assert terminal.run("db", "restore", "copy.db").out == (
        f"The database is restored from copy.db, at {NEWEST}.\n"
    )


def test_advancing_ids_counts_the_tables(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "advance_ids", lambda _database: 31)
    assert terminal.run("db", "advance-ids").out == (
        "The ids of 31 tables continue 1,000,000 higher.\n"
    )
    assert terminal.json("db", "advance-ids") == {"sequences": 31, "advancedBy": 1_000_000}


@pytest.mark.parametrize(
    "arguments",
    [
        "db upgrade",
        "db current",
        "db backup copy.db",
        "db restore copy.db",
        "db advance-ids",
        "worker",
        "outbox relay",
        "housekeeping",
        "api",
        "simulator",
    ],
)
def test_commands_for_this_machine_refuse_a_remote_api(terminal: Terminal, arguments: str) -> None:
    ended = terminal.run("--api", "http://127.0.0.1:9", "--token", "t", *arguments.split())
    command = " ".join(arguments.removesuffix(" copy.db").split())
    assert (ended.code, ended.out, ended.err) == (
        2,
        "",
        f"`automation {command}` works only on the local machine: omit --api, and unset AUTOMATION_API_URL.\n",
    )
    assert list(terminal.folder.iterdir()) == [terminal.folder / "automation.db"]
