"""Database engines and transactions, on SQLite or PostgreSQL as the URL says."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import AutomationError, InfrastructureError, PermanentError
from automation_pipeline.core.files import make_private_file, make_private_folder
from automation_pipeline.storage.group_commit import GroupWriter, Operation, run_each

SQLITE_BUSY_SECONDS = 30
# Connections for health checks and metrics, in addition to one per thread.
_SPARE = 5
_LONGEST_LOCK_SECONDS = 10.0


class DatabaseNotReadyError(PermanentError):
    """The database or its tables do not exist, or they have another version."""

    public_message = "The database is not ready: run `automation db upgrade`"


class DatabaseMissingError(DatabaseNotReadyError):
    """The SQLite file does not exist."""

    def __init__(self, file: Path) -> None:
        super().__init__(f"There is no database at {file.absolute()}: run `automation db upgrade`.")


@dataclass(frozen=True)
class ServerLimits:
    """The limits of a server: its number of threads, and the time limit of a request."""

    threads: int
    seconds: float

    @property
    def lock_seconds(self) -> float:
        return min(_LONGEST_LOCK_SECONDS, self.seconds / 3)

    @property
    def statement_seconds(self) -> float:
        return self.seconds * 2 / 3


def engine_of(url: URL, limits: ServerLimits | None = None) -> Engine:
    """Errors and log lines of the engine contain no data."""
    is_file = _is_sqlite_file(url)
    pool: dict[str, Any] = {}  # options of create_engine
    if limits is not None and (is_file or url.get_backend_name() == "postgresql"):
        pool = {
            "pool_size": limits.threads,
            "max_overflow": _SPARE,
            "pool_timeout": limits.lock_seconds,
        }
    if url.get_backend_name() == "postgresql":
        connecting = {"connect_timeout": 10}
        engine = create_engine(
            url, pool_pre_ping=True, hide_parameters=True, connect_args=connecting, **pool
        )
        if limits is not None:
            event.listen(engine, "connect", _set_timeouts(limits))
        return engine
    engine = create_engine(
        url, hide_parameters=True, connect_args={"timeout": SQLITE_BUSY_SECONDS}, **pool
    )
    if is_file:
        event.listen(engine, "do_connect", _connect_to_file)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_timeouts(limits: ServerLimits) -> Callable[[DBAPIConnection, object], None]:
    def limit(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET lock_timeout = {round(limits.lock_seconds * 1000)}")
        cursor.execute(f"SET statement_timeout = {round(limits.statement_seconds * 1000)}")
        cursor.close()
        connection.commit()

    return limit


def _is_sqlite_file(url: URL) -> bool:
    return url.get_backend_name() == "sqlite" and bool(url.database) and url.database != ":memory:"


def _connect_to_file(
    dialect: Dialect, _record: object, arguments: Sequence[Any], options: Mapping[str, Any]
) -> DBAPIConnection:
    """Refuse a missing file, which SQLite itself would create."""
    file = Path(arguments[0])
    with suppress(OSError):  # in a folder that this user cannot open: SQLite says so
        if not file.exists():
            raise DatabaseMissingError(file)
    return dialect.connect(f"{file.as_uri()}?mode=rw", **{**options, "uri": True})


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver must not begin transactions
    connection.execute(f"PRAGMA busy_timeout={SQLITE_BUSY_SECONDS * 1000}")
    _use_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    # The switch of a new file fails at once while another process switches it, whatever the busy
    # timeout. The beginning of a transaction waits for the other process.
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
    # A writer locks the database at once, because a read transaction that begins to write later fails instead
    # of waiting.
    connection.exec_driver_sql(
        connection.get_execution_options().get("sqlite_begin", "BEGIN IMMEDIATE")
    )


Item = TypeVar("Item")
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


class DatabaseUnavailableError(InfrastructureError):
    """The database cannot execute the statement now."""


class DatabaseUnreachableError(DatabaseUnavailableError):
    """The database does not answer."""

    public_message = "The database does not answer"


class DatabaseBusyError(DatabaseUnavailableError):
    """Other transactions blocked the statement for too long, or the database is overloaded."""

    public_message = "The database is too busy"


class DatabaseFullError(DatabaseUnavailableError):
    """The disk is full until an operator frees space."""

    public_message = "The database's disk is full"


class _ThreadState(threading.local):
    outer: Session | None = None


class Database:
    """Sessions on one engine. `transaction` commits at the end of its block; `reading` sees one
    snapshot."""

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self.dialect = self.url.get_backend_name()
        self._set_engine(engine_of(self.url))
        self._thread_state = _ThreadState()
        # Reentrant, because a transaction that has not started may contain another.
        self._write_lock = threading.RLock()
        self._writer = GroupWriter(self.transaction)

    def _set_engine(self, engine: Engine) -> None:
        options: dict[str, object] = {
            "isolation_level": "REPEATABLE READ",
            "postgresql_readonly": True,
        }
        if self.dialect == "sqlite":
            options = {"sqlite_begin": "BEGIN DEFERRED"}
        self.engine, self._readers = engine, engine.execution_options(**options)

    def create_file(self) -> bool:
        """Create the file of an SQLite database, which no other function does. True if it did not
        exist."""
        if not _is_sqlite_file(self.url):
            return False
        file = Path(str(self.url.database)).absolute()
        try:
            make_private_folder(file.parent)
            return make_private_file(file)
        except OSError as error:
            raise PermanentError(
                f"The database {file} cannot be created: {error.strerror}."
            ) from None

    def serve(self, limits: ServerLimits) -> None:
        """Use the limits of a server. Call it before the first use of the database."""
        self.dispose()
        self._set_engine(engine_of(self.url, limits))

    @contextmanager
    def transaction(self) -> Generator[Session]:
        outer = self._thread_state.outer
        if outer is not None:
            with outer.begin_nested():
                yield outer
            return
        with self._lock_for_write(), self._session(self.engine) as session, session.begin():
            yield session

    async def write(
        self, work: Callable[[Session], Result], *, even_if_cancelled: bool = False
    ) -> Result:
        """Run a short transaction, committed together with those of other tasks. `work` may be
        called more than once. With `even_if_cancelled`, it also runs if the task is cancelled before."""
        return await self._write(run_each, work, even_if_cancelled)

    async def write_in_bulk(
        self,
        operation: Callable[[Session, Sequence[Item]], Sequence[Result | AutomationError]],
        item: Item,
        *,
        even_if_cancelled: bool = False,
    ) -> Result:
        """Run the operation once for this item and for the items that other tasks submit before the
        group runs.

        The operation executes statements for all items together and returns one result per item, in
        their order. An error in place of a result is raised for the caller of that item.
        """
        return await self._write(operation, item, even_if_cancelled)

    def write_in_bulk_soon(
        self,
        operation: Callable[[Session, Sequence[Item]], Sequence[Result | AutomationError]],
        item: Item,
    ) -> Result:
        if self._thread_state.outer is None:
            return self._writer.submit(operation, item).result()
        with self.transaction() as session:
            [result] = operation(session, [item])
        if isinstance(result, AutomationError):
            raise result
        return result

    async def _write(self, operation: Operation, item: object, even_if_cancelled: bool) -> Any:  # noqa: ANN401  its result
        if self._thread_state.outer is not None:
            return self.write_in_bulk_soon(operation, item)
        written = self._writer.submit_soon(operation, item)
        return await (asyncio.shield(written) if even_if_cancelled else written)

    @contextmanager
    def _lock_for_write(self, timeout_seconds: float = SQLITE_BUSY_SECONDS) -> Generator[None]:
        """SQLite has one writer. The threads of this process wait here, because SQLite would make
        them poll."""
        if self.dialect != "sqlite":
            yield
            return
        if not self._write_lock.acquire(timeout=timeout_seconds):
            raise DatabaseBusyError(
                "The database was too busy: another thread has written for long."
            )
        try:
            yield
        finally:
            self._write_lock.release()

    @contextmanager
    def unless_busy(self) -> Generator[Session]:
        """Like `transaction`, for work that should not wait. Raises TransientError if another writer is
        active."""
        with (
            self._lock_for_write(timeout_seconds=0),
            translated_errors(),
            self.engine.connect() as connection,
            _without_busy_timeout(connection),
            Session(connection, expire_on_commit=False) as session,
            session.begin(),
        ):
            if self.dialect == "postgresql":
                session.execute(text("SET LOCAL lock_timeout = 1"))
            yield session

    @contextmanager
    def reading(self) -> Generator[Session]:
        outer = self._thread_state.outer
        if outer is not None:
            yield outer
            return
        with self._session(self._readers) as session, session.begin():
            yield session

    def read(
        self,
        query: Callable[Concatenate[Session, Parameters], Result],
        *arguments: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Result:
        with self.reading() as session:
            return query(session, *arguments, **named)

    @contextmanager
    def single_transaction(self) -> Generator[Session]:
        """Make all transactions that this thread begins in the block part of this one, which is
        committed as a whole."""
        with self.transaction() as session:
            before, self._thread_state.outer = self._thread_state.outer, session
            try:
                yield session
            finally:
                self._thread_state.outer = before

    @contextmanager
    def _session(self, engine: Engine) -> Generator[Session]:
        with translated_errors(), Session(engine, expire_on_commit=False) as session:
            yield session

    def ping(self) -> None:
        with self.reading() as session:
            session.execute(text("SELECT 1"))

    def dispose(self) -> None:
        self._writer.close()
        self.engine.dispose()


def parse_url(url: str) -> URL:
    """The driver of `postgresql://` is psycopg 3. Raises PermanentError if the database is neither SQLite
    nor PostgreSQL."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise PermanentError("DATABASE_URL is not a database URL.") from None
    if parsed.drivername in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername in {"postgresql+psycopg", "sqlite"}:
        return parsed
    raise PermanentError(
        f"DATABASE_URL must start with sqlite:/// or postgresql://, not {parsed.drivername}://."
    )


@contextmanager
def _without_busy_timeout(connection: Connection) -> Generator[None]:
    """Set the busy timeout to 0, and restore it before the connection returns to the pool."""
    driver = connection.connection.dbapi_connection
    if not isinstance(driver, sqlite3.Connection):
        yield
        return
    driver.execute("PRAGMA busy_timeout=0")
    try:
        yield
    finally:
        driver.execute(f"PRAGMA busy_timeout={SQLITE_BUSY_SECONDS * 1000}")


@contextmanager
def translated_errors() -> Generator[None]:
    """Convert the driver's errors into errors with a message for operators. Bugs, such as wrong
    SQL, stay as they are."""
    try:
        yield
    except DatabaseError as error:
        if (translated := _translate(error)) is None:
            raise
        raise translated from error
    except PoolTimeoutError as error:
        raise DatabaseUnreachableError(
            "The database does not answer: all connections are in use here."
        ) from error


# What an operator can do, by SQLite's primary result code.
_SQLITE_REFUSALS = {
    sqlite3.SQLITE_NOTADB: "DATABASE_URL names a file that is not an SQLite database",
    sqlite3.SQLITE_READONLY: "The database cannot be written: let this user write its file and its folder",
    sqlite3.SQLITE_CORRUPT: "The database's file is damaged: restore it from a backup",
}
_FULL = {sqlite3.SQLITE_FULL, "53100"}
FULL_DISK_WAIT_SECONDS = 30.0
# Temporary SQLSTATEs: deadlock, serialization failure, lock timeout, statement timeout.
_ABORTED, _TOO_BUSY = "gave way to another transaction", "was too busy"
_TEMPORARY = {"40P01": _ABORTED, "40001": _ABORTED, "55P03": _TOO_BUSY, "57014": _TOO_BUSY}


def _translate(error: DatabaseError) -> AutomationError | None:
    """None for a bug, such as wrong SQL.

    A missing column counts as an older schema, without a look at the revision, because the system's
    queries name only mapped columns, and the tests run them on the newest schema. The message
    contains the driver's text in case it is a bug.
    """
    lines = str(error.orig).strip().splitlines()
    reason = lines[0].rstrip(".") if lines else type(error.orig).__name__
    code = _error_code(error)
    if isinstance(code, int) and code in _SQLITE_REFUSALS:
        return PermanentError(f"{_SQLITE_REFUSALS[code]} ({reason}).")
    if code in _FULL:
        message = f"The database cannot grow: free space on its disk ({reason})."
        return DatabaseFullError(message, retry_after_seconds=FULL_DISK_WAIT_SECONDS)
    if code == "42P01" or "no such table" in reason:
        return DatabaseNotReadyError("The database has no tables yet: run `automation db upgrade`.")
    if code == "42703" or "no such column" in reason or "has no column named" in reason:
        return DatabaseNotReadyError(
            f"The database is of another version ({reason}): run `automation db upgrade`."
        )
    if isinstance(code, str) and code in _TEMPORARY:
        return DatabaseBusyError(f"The database {_TEMPORARY[code]}: {reason}.")
    # SQLite's driver reports wrong SQL with the code SQLITE_ERROR.
    is_unreachable = isinstance(error, OperationalError) and code != sqlite3.SQLITE_ERROR
    return (
        DatabaseUnreachableError(f"The database does not answer: {reason}.")
        if is_unreachable
        else None
    )


def _error_code(error: DatabaseError) -> int | str | None:
    """SQLite's primary result code, PostgreSQL's SQLSTATE."""
    if isinstance(error.orig, sqlite3.Error):
        code = getattr(error.orig, "sqlite_errorcode", None)  # errors of the driver have none
        return None if code is None else code & 0xFF
    return getattr(error.orig, "sqlstate", None)
