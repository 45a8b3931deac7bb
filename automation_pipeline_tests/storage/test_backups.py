"""Backups of SQLite databases are consistent snapshots that can be restored."""

import os
import re
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import func, select

from automation_pipeline import migrations
from automation_pipeline.core.errors import AutomationError, InvalidInputError, PermanentError
from automation_pipeline.migrations.tables import METADATA
from automation_pipeline.storage import backups
from automation_pipeline.storage.backups import advance_ids, back_up, is_filled, restore
from automation_pipeline.storage.database import Database, DatabaseBusyError
from automation_pipeline.storage.history import Transition, TransitionRow, record_transitions
from automation_pipeline.storage.run_requests import NewRunRequest, RunRequestRow, file_requests
from automation_pipeline_tests.fakes.clock import FakeClock

SQLITE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


def quiet(_done: int, _total: int) -> None:
    """Ignores the progress."""


def file(database: Database, clock: FakeClock, *keys: str) -> None:
    with database.transaction() as session:
        file_requests(
            session,
            [NewRunRequest(key, "automation_run", {"text": key * 500}, {}) for key in keys],
            clock.now(),
        )


def filed(database: Database) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(RunRequestRow)) or 0


def move(database: Database, clock: FakeClock) -> None:
    with database.transaction() as session:
        record_transitions(session, [Transition("m", "1", "a", "b", "system", clock.now())])


def ids(database: Database) -> list[int]:
    """The ids of the newest request and transition."""
    with database.reading() as session:
        return [
            session.scalar(select(func.max(row.id))) or 0 for row in (RunRequestRow, TransitionRow)
        ]


@SQLITE
def test_a_restore_is_seen_by_open_connections(
    database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    file(database, clock, "a", "b")
    back_up(database, tmp_path / "copy", quiet)
    file(database, clock, "c")
    assert filed(database) == 3
    restore(database, tmp_path / "copy", quiet)
    assert filed(database) == 2
    file(database, clock, "d")
    assert filed(database) == 3
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith("copy")) == ["copy"]


@SQLITE
def test_a_restored_database_does_not_reuse_ids(
    database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    """This includes tables that were empty in the backup, and a second restore."""
    file(database, clock, "a")
    back_up(database, tmp_path / "copy", quiet)
    move(database, clock)
    file(database, clock, "b")
    for _restore in range(2):
        before = ids(database)
        restore(database, tmp_path / "copy", quiet)
        file(database, clock, "c")
        move(database, clock)
        given = [after - known for after, known in zip(ids(database), before, strict=True)]
        assert min(given) > 0, given


def test_ids_are_advanced_on_both_databases(database: Database, clock: FakeClock) -> None:
    file(database, clock, "a")
    assert advance_ids(database) == len(
        [one for one in METADATA.sorted_tables if one.autoincrement_column is not None]
    )
    file(database, clock, "b")
    move(database, clock)
    assert ids(database) == [backups.JUMP + 2, backups.JUMP + 1]


@SQLITE
def test_a_backup_is_a_consistent_snapshot_and_does_not_block_writers(
    database: Database, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another connection writes before nearly every page is copied."""
    monkeypatch.setattr(backups, "PAGES_AT_ONCE", 20)
    file(database, clock, *(f"before {number}" for number in range(50)))
    steps: list[int] = []

    def write_during_backup(done: int, _total: int) -> None:
        steps.append(done)
        file(database, clock, f"during {len(steps)}")

    back_up(database, tmp_path / "copy", write_during_backup)
    copy = Database(f"sqlite:///{tmp_path}/copy")
    assert (filed(copy), steps) == (50, sorted(set(steps)))
    assert len(steps) > 5
    assert filed(database) == 50 + len(steps)
    copy.dispose()


@SQLITE
def test_an_interrupted_backup_leaves_no_file(database: Database, tmp_path: Path) -> None:
    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(database, tmp_path / "copy", interrupt)
    assert not list(tmp_path.glob("copy*"))


@SQLITE
def test_restoring_an_invalid_backup_is_refused_and_changes_nothing(
    database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    file(database, clock, "a")
    (tmp_path / "text").write_text("something else" * 100)
    with closing(sqlite3.connect(tmp_path / "others")) as others:
        others.execute("CREATE TABLE t (id INTEGER)")
    for name, words in (
        ("text", "is not an SQLite"),
        ("others", "not a database of this"),
        ("none", "is not there"),
    ):
        with pytest.raises(AutomationError, match=words):
            restore(database, tmp_path / name, quiet)
    with pytest.raises(InvalidInputError, match="is the database itself"):
        restore(database, Path(str(database.url.database)), quiet)
    assert filed(database) == 1


@SQLITE
def test_a_database_in_use_is_not_overwritten(
    database: Database, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "BUSY_SECONDS", 0.05)
    back_up(database, tmp_path / "copy", quiet)
    refused: list[AutomationError] = []

    def overwrite() -> None:
        try:
            restore(database, tmp_path / "copy", quiet)
        except AutomationError as error:
            refused.append(error)

    with database.transaction() as session:
        session.execute(select(1))  # now no other connection can write
        thread = threading.Thread(target=overwrite)
        thread.start()
        thread.join()
    assert [type(error) for error in refused] == [DatabaseBusyError]


def test_a_missing_database_is_not_filled_and_cannot_be_backed_up(
    tmp_path: Path, sqlite_template: Path
) -> None:
    nowhere = Database(f"sqlite:///{tmp_path}/none.db")
    assert not is_filled(nowhere)
    with pytest.raises(PermanentError, match="There is no database at"):
        back_up(nowhere, tmp_path / "copy", quiet)
    assert is_filled(Database(f"sqlite:///{sqlite_template}"))


def test_a_postgres_backup_is_refused_and_names_pg_dump() -> None:
    with pytest.raises(InvalidInputError, match="pg_dump"):
        back_up(Database("postgresql://nowhere/x"), Path("copy"), quiet)


@SQLITE
def test_database_and_backup_files_are_readable_only_by_their_owner(
    database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    """The umask does not matter, because the files contain transcripts and names of people."""
    before = os.umask(0)
    try:
        target = Database(f"sqlite:///{tmp_path}/a/b/new.db")
        restore_from = tmp_path / "copy.db"
        file(database, clock, "one")
        back_up(database, restore_from, quiet)
        restore(target, restore_from, quiet)
        move(target, clock)
        with target.reading():
            files = sorted((tmp_path / "a" / "b").iterdir())
            assert {path.name for path in files} >= {"new.db", "new.db-wal"}
            modes = {path.name: oct(path.stat().st_mode & 0o777) for path in [*files, restore_from]}
        target.engine.dispose()
        empty = Database(f"sqlite:///{tmp_path}/c/empty.db")
        migrations.upgrade(empty)
        with empty.engine.connect():
            modes["empty.db"] = oct((tmp_path / "c" / "empty.db").stat().st_mode & 0o777)
        empty.engine.dispose()
        assert set(modes.values()) == {"0o600"}, modes
        folders = {oct((tmp_path / name).stat().st_mode & 0o777) for name in ("a", "a/b", "c")}
        assert folders == {"0o700"}
    finally:
        os.umask(before)


@SQLITE
def test_a_backup_cannot_replace_the_database_or_go_to_a_missing_folder(
    database: Database, tmp_path: Path
) -> None:
    own = Path(str(database.url.database))
    with pytest.raises(InvalidInputError, match="is the database itself"):
        back_up(database, own, quiet)
    with pytest.raises(InvalidInputError, match="is the database itself"):
        restore(database, own, quiet)
    missing = tmp_path / "missing" / "copy"
    message = f"{missing} cannot be written: No such file or directory."
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        back_up(database, missing, quiet)


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (sqlite3.SQLITE_BUSY, DatabaseBusyError, backups.IN_USE),
        (sqlite3.SQLITE_LOCKED, DatabaseBusyError, backups.IN_USE),
        (sqlite3.SQLITE_BUSY | 1 << 8, DatabaseBusyError, backups.IN_USE),
        (sqlite3.SQLITE_NOTADB, InvalidInputError, "copy is not an SQLite database."),
        (sqlite3.SQLITE_IOERR, PermanentError, "The copy failed: words."),
        (None, PermanentError, "The copy failed: words."),
    ],
)
def test_errors_of_sqlite_are_translated(
    code: int | None, error: type[AutomationError], message: str
) -> None:
    raised = sqlite3.DatabaseError("words")
    if code is not None:
        raised.sqlite_errorcode = code
    with pytest.raises(AutomationError) as caught, backups._translated_errors(Path("copy")):
        raise raised
    assert (type(caught.value), str(caught.value)) == (error, message)
