"""Engines on SQLite or PostgreSQL: for work, which may wait long, or for answers, which somebody waits for."""

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.whole_file import make_private_file, make_private_folder

SQLITE_BUSY_SECONDS = 30
# Beside the threads that answer: checks of health, measures.
_SPARE = 5
_LONGEST_LOCK_SECONDS = 10.0


class DatabaseNotReadyError(PermanentError):
    """There is no database, or its tables are not there, or not those of this version."""

    outside = "The database is not ready: run `automation db upgrade`"


class DatabaseMissingError(DatabaseNotReadyError):
    """The SQLite file that is named does not exist."""

    def __init__(self, file: Path) -> None:
        super().__init__(f"There is no database at {file.absolute()}: run `automation db upgrade`.")


@dataclass(frozen=True)
class Pace:
    """Of a server: so many threads at once, and so many seconds that an answer may take."""

    threads: int
    seconds: float

    @property
    def lock_seconds(self) -> float:
        return min(_LONGEST_LOCK_SECONDS, self.seconds / 3)

    @property
    def statement_seconds(self) -> float:
        return self.seconds * 2 / 3

    def pool(self) -> dict[str, Any]:  # Any: options of create_engine
        return {"pool_size": self.threads, "max_overflow": _SPARE, "pool_timeout": self.lock_seconds}


def engine_of(url: URL, pace: Pace | None = None) -> Engine:
    """Its errors and log lines never show what was written or asked for."""
    return _sqlite_engine(url, pace) if url.get_backend_name() == "sqlite" else _postgres_engine(url, pace)


def _postgres_engine(url: URL, pace: Pace | None) -> Engine:
    pool = {"pool_size": 5, "max_overflow": 10} if pace is None else pace.pool()
    connecting = {"connect_timeout": 10}
    engine = create_engine(url, pool_pre_ping=True, hide_parameters=True, connect_args=connecting, **pool)
    if pace is not None:
        event.listen(engine, "connect", _limits(pace))
    return engine


def _limits(pace: Pace) -> Callable[[DBAPIConnection, object], None]:
    def limit(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET lock_timeout = {round(pace.lock_seconds * 1000)}")
        cursor.execute(f"SET statement_timeout = {round(pace.statement_seconds * 1000)}")
        cursor.close()
        connection.commit()

    return limit


def _sqlite_engine(url: URL, pace: Pace | None) -> Engine:
    is_file = _names_file(url)
    pool = pace.pool() if pace is not None and is_file else {}
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": SQLITE_BUSY_SECONDS}, **pool)
    if is_file:
        event.listen(engine, "do_connect", _connect_to_file)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _names_file(url: URL) -> bool:
    return url.get_backend_name() == "sqlite" and bool(url.database) and url.database != ":memory:"


def create_file(url: URL) -> bool:
    """Creates the SQLite file that the URL names, empty, with its folders; True when it was not there."""
    if not _names_file(url):
        return False
    file = Path(str(url.database)).absolute()
    try:
        make_private_folder(file.parent)
        return make_private_file(file)
    except OSError as error:
        raise PermanentError(f"The database {file} cannot be created: {error.strerror}.") from None


def _connect_to_file(
    dialect: Dialect, _record: object, arguments: Sequence[Any], options: Mapping[str, Any]
) -> DBAPIConnection:
    """SQLite itself would create a file that is missing."""
    file = Path(arguments[0])
    if _is_missing(file):
        raise DatabaseMissingError(file)
    return dialect.connect(f"{file.as_uri()}?mode=rw", **{**options, "uri": True})


def _is_missing(file: Path) -> bool:
    try:
        return not file.exists()
    except OSError:  # in a folder that this user cannot open: SQLite says so
        return False


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


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes its lock at once: a read transaction that starts to write later fails instead of waiting.
    connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", "BEGIN IMMEDIATE"))
