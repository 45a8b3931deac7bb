"""Engine and unit of work: one transaction a task, on SQLite or PostgreSQL by the URL alone."""

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError
from sqlalchemy.orm import Session as Session  # noqa: PLC0414  stages name the type, not the library

from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError

SQLITE_BUSY_SECONDS = 30


class DatabaseUnreachableError(TransientError):
    """The database does not answer."""


class DatabaseNotReadyError(PermanentError):
    """The database answers, but its tables are not there, or not those of this version."""


class Database:
    """Sessions on one engine. `transaction` writes and commits at its end; `reading` sees one snapshot."""

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self.dialect = self.url.get_backend_name()
        self.engine = _sqlite_engine(self.url) if self.dialect == "sqlite" else _postgres_engine(self.url)
        self._whole: ContextVar[Session | None] = ContextVar("whole", default=None)
        self._readers = self.engine.execution_options(**_reading_options(self.dialect))

    @contextmanager
    def transaction(self) -> Generator[Session]:
        whole = self._whole.get()
        if whole is not None:
            with whole.begin_nested():
                yield whole
            return
        with self._session(self.engine) as session, session.begin():
            yield session

    @contextmanager
    def unless_busy(self) -> Generator[Session]:
        """As `transaction`, for what is not worth a wait: TransientError at once if another writer is in the way."""
        with (
            in_plain_words(),
            self.engine.connect() as connection,
            _impatient(connection),
            Session(connection, expire_on_commit=False) as session,
            session.begin(),
        ):
            if self.dialect == "postgresql":
                session.execute(text("SET LOCAL lock_timeout = 1"))
            yield session

    @contextmanager
    def reading(self) -> Generator[Session]:
        whole = self._whole.get()
        if whole is not None:
            yield whole
            return
        with self._session(self._readers) as session, session.begin():
            yield session

    @contextmanager
    def as_one(self) -> Generator[Session]:
        """Every transaction that this thread begins inside is part of this one: all of it is kept, or nothing."""
        with self.transaction() as session:
            before = self._whole.set(session)
            try:
                yield session
            finally:
                self._whole.reset(before)

    @contextmanager
    def _session(self, engine: Engine) -> Generator[Session]:
        with in_plain_words(), Session(engine, expire_on_commit=False) as session:
            yield session

    def ping(self) -> None:
        with self.reading() as session:
            session.execute(text("SELECT 1"))

    def dispose(self) -> None:
        self.engine.dispose()


def parse_url(url: str) -> URL:
    """`postgresql://` means psycopg 3 here; anything but SQLite and PostgreSQL is refused."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise PermanentError("DATABASE_URL is not a database URL.") from None
    if parsed.drivername in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername in {"postgresql+psycopg", "sqlite"}:
        return parsed
    raise PermanentError(f"DATABASE_URL must start with sqlite:/// or postgresql://, not {parsed.drivername}://.")


def _reading_options(dialect: str) -> dict[str, object]:
    if dialect == "sqlite":
        return {"sqlite_begin": "BEGIN DEFERRED"}
    return {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


def _postgres_engine(url: URL) -> Engine:
    return create_engine(url, pool_pre_ping=True, pool_size=5, max_overflow=10, connect_args={"connect_timeout": 10})


def _sqlite_engine(url: URL) -> Engine:
    if url.database and url.database != ":memory:":
        _make_room(Path(url.database).parent)
    engine = create_engine(url, connect_args={"timeout": SQLITE_BUSY_SECONDS})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _make_room(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PermanentError(f"DATABASE_URL is in a folder that cannot be made, {folder}: {error.strerror}.") from None


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver would begin transactions late and by itself
    connection.execute(f"PRAGMA busy_timeout={SQLITE_BUSY_SECONDS * 1000}")
    _use_write_ahead_log(connection)
    for pragma in ("synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    # The switch of a new file fails at once when another process is at it, whatever the busy timeout. To begin a
    # transaction does wait, so that is how to wait for the other one.
    deadline = time.monotonic() + SQLITE_BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        else:
            return


@contextmanager
def _impatient(connection: Connection) -> Generator[None]:
    """SQLite's own patience belongs to the connection, and is given back with it."""
    driver = connection.connection.dbapi_connection
    if not isinstance(driver, sqlite3.Connection):
        yield
        return
    driver.execute("PRAGMA busy_timeout=0")
    try:
        yield
    finally:
        driver.execute(f"PRAGMA busy_timeout={SQLITE_BUSY_SECONDS * 1000}")


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes its lock at once: a read transaction that starts to write later fails instead of waiting.
    connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", "BEGIN IMMEDIATE"))


@contextmanager
def in_plain_words() -> Generator[None]:
    """What the driver says, as an error with a verdict; what is our own mistake stays as it is."""
    try:
        yield
    except DatabaseError as error:
        understood = _understood(error)
        if understood is None:
            raise
        raise understood from error


# What SQLite's primary result codes ask of an operator.
_SQLITE_REFUSALS = {
    sqlite3.SQLITE_NOTADB: "DATABASE_URL names a file that is not an SQLite database",
    sqlite3.SQLITE_READONLY: "The database cannot be written: let this user write its file and its folder",
    sqlite3.SQLITE_FULL: "The database cannot grow: make room on its disk",
    sqlite3.SQLITE_CORRUPT: "The database's file is damaged: restore it from a backup",
}
_CONFLICTS = {"40P01", "40001"}  # deadlock, serialization failure


def _understood(error: DatabaseError) -> AutomationError | None:
    """None for a bug: wrong SQL stays what it is.

    A column that is missing is taken for an older schema, without looking at the revision: our queries name mapped
    columns only, and the suite runs them on the newest schema. The driver's words are kept in case it is a bug.
    """
    reason, code = _first_line(error), _code(error)
    if isinstance(code, int) and code in _SQLITE_REFUSALS:
        return PermanentError(f"{_SQLITE_REFUSALS[code]} ({reason}).")
    if code == "42P01" or "no such table" in reason:
        return DatabaseNotReadyError("The database has no tables yet: run `automation db upgrade`.")
    if code == "42703" or "no such column" in reason or "has no column named" in reason:
        return DatabaseNotReadyError(f"The database is of another version ({reason}): run `automation db upgrade`.")
    if code in _CONFLICTS:
        return TransientError(f"The database gave way to another transaction: {reason}.")
    if isinstance(error, OperationalError) and code != sqlite3.SQLITE_ERROR:  # wrong SQL, to SQLite's driver
        return DatabaseUnreachableError(f"The database does not answer: {reason}.")
    return None


def _code(error: DatabaseError) -> int | str | None:
    """SQLite's primary result code, PostgreSQL's SQLSTATE."""
    if isinstance(error.orig, sqlite3.Error):
        code = getattr(error.orig, "sqlite_errorcode", None)  # what the driver says by itself has none
        return None if code is None else code & 0xFF
    return getattr(error.orig, "sqlstate", None)


def _first_line(error: DatabaseError) -> str:
    lines = str(error.orig).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error.orig).__name__
