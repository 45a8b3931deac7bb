"""Backup and restore of an SQLite database while it is in use. For PostgreSQL, use its own tools."""

import sqlite3
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import text

from automation_pipeline.core.errors import InvalidInputError, PermanentError
from automation_pipeline.core.files import make_private_file
from automation_pipeline.storage.database import Database, DatabaseBusyError, DatabaseMissingError

# Receives the copied and the total number of pages.
Progress = Callable[[int, int], None]

PAGES_AT_ONCE = 2000
BUSY_SECONDS = 10.0
# More ids than any table uses between two copies.
JUMP = 1_000_000
_ADVANCE = text("""
    SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, 0) + :jump)
    FROM pg_sequences WHERE schemaname = current_schema()
""")
IN_USE = "The database is in use: stop what works on it, and try again."
ON_POSTGRES = (
    "The database is PostgreSQL: use `pg_dump --format=custom`, and `pg_restore --clean --if-exists` followed by "
    "`automation db advance-ids`, as docs/operations.md says."
)


def back_up(database: Database, file: Path, report: Progress) -> None:
    """Copy the database as it was at one moment. The file appears when it is complete, and replaces
    an existing one."""
    source = _file_of(database)
    if not source.exists():
        raise DatabaseMissingError(source)
    if file.exists() and file.samefile(source):
        raise InvalidInputError(f"{file} is the database itself.")
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        unfinished.unlink(missing_ok=True)
        make_private_file(unfinished)
        with (
            _translated_errors(file),
            closing(_open(source)) as working,
            closing(sqlite3.connect(unfinished)) as copy,
        ):
            # One snapshot for all pages: without it, each commit of another process would
            # restart the copy.
            working.execute("BEGIN")
            working.execute("SELECT 1 FROM sqlite_master").fetchone()
            working.backup(copy, pages=PAGES_AT_ONCE, progress=_progress(report), sleep=0)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without other files
            _check(copy, file)
        unfinished.replace(file)
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be written: {error.strerror}.") from None
    finally:
        unfinished.unlink(missing_ok=True)


def restore(database: Database, file: Path, report: Progress) -> None:
    """Replace the content of the database by that of the file, for all open connections at once.
    Ids that the replaced database used are not used again."""
    target = _file_of(database)
    if not file.is_file():
        raise InvalidInputError(f"{file} is not there.")
    if target.exists() and file.samefile(target):
        raise InvalidInputError(f"{file} is the database itself.")
    with _translated_errors(file), closing(_open(file)) as copy:
        _check(copy, file)
        database.create_file()
        with closing(sqlite3.connect(target, timeout=BUSY_SECONDS)) as working:
            used = _sequences(working)
            copy.backup(working, progress=_progress(report))
            _advance(working, used)


def advance_ids(database: Database) -> int:
    """Skip the ids that may have been used after the copy was made, because keys that contain them,
    such as Dagster's run keys, outlive the restore. Returns the number of sequences."""
    if database.dialect == "sqlite":
        with _translated_errors(_file_of(database)), closing(_open(_file_of(database))) as working:
            return _advance(working, {})
    with database.transaction() as session:
        return len(session.execute(_ADVANCE, {"jump": JUMP}).all())


def _sequences(working: sqlite3.Connection) -> dict[str, int]:
    """The last id of each table, including deleted rows. A new file has none."""
    if (
        working.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'").fetchone()
        is None
    ):
        return {}
    return dict(working.execute("SELECT name, seq FROM sqlite_sequence").fetchall())


def _advance(working: sqlite3.Connection, used: Mapping[str, int]) -> int:
    """Continue after the ids of the copy and after `used`, the ids of the replaced database."""
    restored = _sequences(working)
    counted = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'"
    names = [name for (name,) in working.execute(counted).fetchall()]
    rows = [(name, max(restored.get(name, 0), used.get(name, 0)) + JUMP) for name in names]
    with working:
        working.execute("DELETE FROM sqlite_sequence")
        working.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", rows)
    return len(rows)


def is_filled(database: Database) -> bool:
    file = _file_of(database)
    if not file.is_file():
        return False
    with _translated_errors(file), closing(_open(file)) as working:
        return working.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None


def _file_of(database: Database) -> Path:
    if database.dialect != "sqlite":
        raise InvalidInputError(ON_POSTGRES)
    return Path(str(database.url.database))


def _open(file: Path) -> sqlite3.Connection:
    address = f"{file.resolve().as_uri()}?mode=rw"
    return sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def _progress(report: Progress) -> Callable[[int, int, int], None]:
    """Stop a copy that waits for the locks of others: the driver itself waits without a limit."""
    moved_at, before = time.monotonic(), -1

    def callback(_status: int, left: int, total: int) -> None:
        nonlocal moved_at, before
        if left != before:
            moved_at, before = time.monotonic(), left
        elif time.monotonic() - moved_at > BUSY_SECONDS:
            raise DatabaseBusyError(IN_USE)
        report(total - left, total)

    return callback


def _check(copy: sqlite3.Connection, file: Path) -> None:
    if copy.execute("PRAGMA quick_check").fetchone() != ("ok",):
        raise PermanentError(f"{file} is damaged.")
    if (
        copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
        is None
    ):
        raise InvalidInputError(f"{file} is not a database of this program.")


@contextmanager
def _translated_errors(file: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            raise DatabaseBusyError(IN_USE) from error
        if code == sqlite3.SQLITE_NOTADB:
            raise InvalidInputError(f"{file} is not an SQLite database.") from error
        raise PermanentError(f"The copy failed: {error}.") from error
