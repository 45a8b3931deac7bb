"""Engines and the unit of work: one transaction per task, on SQLite or PostgreSQL by the URL
alone."""

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
# For checks of health and metrics, next to the threads that answer.
_SPARE = 5
_LONGEST_LOCK_SECONDS = 10.0


class DatabaseNotReadyError(PermanentError):
    """The database or its tables do not exist, or they have another version."""

    outside = "The database is not ready: run `automation db upgrade`"


class DatabaseMissingError(DatabaseNotReadyError):
    """The SQLite file that is named does not exist."""

    def __init__(self, file: Path) -> None:
        super().__init__(f"There is no database at {file.absolute()}: run `automation db upgrade`.")


@dataclass(frozen=True)
class Pace:
    """Of a server: its threads, and the time limit of a request in seconds."""

    threads: int
    seconds: float

    @property
    def lock_seconds(self) -> float:
        return min(_LONGEST_LOCK_SECONDS, self.seconds / 3)

    @property
    def statement_seconds(self) -> float:
        return self.seconds * 2 / 3


def engine_of(url: URL, pace: Pace | None = None) -> Engine:
    """Its errors and log lines contain no data."""
    is_file = _names_file(url)
    pool: dict[str, Any] = {}  # options of create_engine
    if pace is not None and (is_file or url.get_backend_name() == "postgresql"):
        pool = {
            "pool_size": pace.threads,
            "max_overflow": _SPARE,
            "pool_timeout": pace.lock_seconds,
        }
    if url.get_backend_name() == "postgresql":
        connecting = {"connect_timeout": 10}
        engine = create_engine(
            url, pool_pre_ping=True, hide_parameters=True, connect_args=connecting, **pool
        )
        if pace is not None:
            event.listen(engine, "connect", _limits(pace))
        return engine
    engine = create_engine(
        url, hide_parameters=True, connect_args={"timeout": SQLITE_BUSY_SECONDS}, **pool
    )
    if is_file:
        event.listen(engine, "do_connect", _connect_to_file)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _limits(pace: Pace) -> Callable[[DBAPIConnection, object], None]:
    def limit(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET lock_timeout = {round(pace.lock_seconds * 1000)}")
        cursor.execute(f"SET statement_timeout = {round(pace.statement_seconds * 1000)}")
        cursor.close()
        connection.commit()

    return limit


def _names_file(url: URL) -> bool:
    return url.get_backend_name() == "sqlite" and bool(url.database) and url.database != ":memory:"


def _connect_to_file(
    dialect: Dialect, _record: object, arguments: Sequence[Any], options: Mapping[str, Any]
) -> DBAPIConnection:
    """SQLite itself would create a file that is missing."""
    file = Path(arguments[0])
    with suppress(OSError):  # in a folder that this user cannot open: SQLite says so
        if not file.exists():
            raise DatabaseMissingError(file)
    return dialect.connect(f"{file.as_uri()}?mode=rw", **{**options, "uri": True})


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver would begin transactions late and by itself
    connection.execute(f"PRAGMA busy_timeout={SQLITE_BUSY_SECONDS * 1000}")
    _use_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    # The switch of a new file fails at once when another process is at it, whatever the busy
    # timeout. To begin a transaction does wait, so that is how to wait for the other one.
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
    # A writer takes its lock at once: a read transaction that starts to write later fails instead
    # of waiting.
    connection.exec_driver_sql(
        connection.get_execution_options().get("sqlite_begin", "BEGIN IMMEDIATE")
    )


Item = TypeVar("Item")
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


class DatabaseUnavailableError(InfrastructureError):
    """The database cannot do it now."""


class DatabaseUnreachableError(DatabaseUnavailableError):
    """The database does not answer."""

    outside = "The database does not answer"


class DatabaseBusyError(DatabaseUnavailableError):
    """Other transactions blocked it for too long, or there was too much to do."""

    outside = "The database is too busy"


class DatabaseFullError(DatabaseUnavailableError):
    """The disk is full until an operator frees space."""

    outside = "The database's disk is full"


class _OfThread(threading.local):
    whole: Session | None = None


class Database:
    """Sessions on one engine. `transaction` writes and commits at its end; `reading` sees one
    snapshot."""

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self.dialect = self.url.get_backend_name()
        self._use(engine_of(self.url))
        self._mine = _OfThread()
        self._turn = threading.RLock()  # a transaction that has not started may contain another
        self._writer = GroupWriter(self.transaction)

    def _use(self, engine: Engine) -> None:
        options: dict[str, object] = {
            "isolation_level": "REPEATABLE READ",
            "postgresql_readonly": True,
        }
        if self.dialect == "sqlite":
            options = {"sqlite_begin": "BEGIN DEFERRED"}
        self.engine, self._readers = engine, engine.execution_options(**options)

    def create_file(self) -> bool:
        """The file of an SQLite database, unless it is there. Nothing else creates it. True when it
        was not there."""
        if not _names_file(self.url):
            return False
        file = Path(str(self.url.database)).absolute()
        try:
            make_private_folder(file.parent)
            return make_private_file(file)
        except OSError as error:
            raise PermanentError(
                f"The database {file} cannot be created: {error.strerror}."
            ) from None

    def serve(self, pace: Pace) -> None:
        """Use the limits of a server from now on, before anything else uses the database."""
        self.dispose()
        self._use(engine_of(self.url, pace))

    @contextmanager
    def transaction(self) -> Generator[Session]:
        whole = self._mine.whole
        if whole is not None:
            with whole.begin_nested():
                yield whole
            return
        with self._turn_to_write(), self._session(self.engine) as session, session.begin():
            yield session

    async def write(self, act: Callable[[Session], Result], *, anyway: bool = False) -> Result:
        """Run a short transaction, committed together with those of other tasks. `act` may be called
        again. `anyway`: also if the task is cancelled before its turn."""
        return await self._write(run_each, act, anyway)

    async def write_in_bulk(
        self,
        operation: Callable[[Session, Sequence[Item]], Sequence[Result | AutomationError]],
        item: Item,
        *,
        anyway: bool = False,
    ) -> Result:
        """Run the operation once for this item and those that other tasks submit before the group runs.

        It returns one result per item, in their order; an error in place of a result is raised for
        the item's caller. Its statements are for all items together.
        """
        return await self._write(operation, item, anyway)

    def write_in_bulk_soon(
        self,
        operation: Callable[[Session, Sequence[Item]], Sequence[Result | AutomationError]],
        item: Item,
    ) -> Result:
        if self._mine.whole is None:
            return self._writer.submit(operation, item).result()
        with self.transaction() as session:
            [result] = operation(session, [item])
        if isinstance(result, AutomationError):
            raise result
        return result

    async def _write(self, operation: Operation, item: object, anyway: bool) -> Any:  # noqa: ANN401  its result
        if self._mine.whole is not None:
            return self.write_in_bulk_soon(operation, item)
        written = self._writer.submit_soon(operation, item)
        return await (asyncio.shield(written) if anyway else written)

    @contextmanager
    def _turn_to_write(self, patience: float = SQLITE_BUSY_SECONDS) -> Generator[None]:
        """SQLite has one writer: threads of this process queue here, where SQLite would let them
        poll."""
        if self.dialect != "sqlite":
            yield
            return
        if not self._turn.acquire(timeout=patience):
            raise DatabaseBusyError(
                "The database was too busy: another thread has written for long."
            )
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def unless_busy(self) -> Generator[Session]:
        """Like `transaction`, for work that is not worth a wait: TransientError at once if another
        writer is active."""
        with (
            self._turn_to_write(patience=0),
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
        whole = self._mine.whole
        if whole is not None:
            yield whole
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
    def as_one(self) -> Generator[Session]:
        """Every transaction that this thread begins inside belongs to this one: all of it is
        committed, or nothing."""
        with self.transaction() as session:
            before, self._mine.whole = self._mine.whole, session
            try:
                yield session
            finally:
                self._mine.whole = before

    @contextmanager
    def _session(self, engine: Engine) -> Generator[Session]:
        with in_plain_words(), Session(engine, expire_on_commit=False) as session:
            yield session

    def ping(self) -> None:
        with self.reading() as session:
            session.execute(text("SELECT 1"))

    def dispose(self) -> None:
        self._writer.close()
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
    raise PermanentError(
        f"DATABASE_URL must start with sqlite:/// or postgresql://, not {parsed.drivername}://."
    )


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


@contextmanager
def in_plain_words() -> Generator[None]:
    """What the driver says, as an error with a verdict; what is our own mistake stays as it is."""
    try:
        yield
    except DatabaseError as error:
        if (understood := _understood(error)) is None:
            raise
        raise understood from error
    except PoolTimeoutError as error:
        raise DatabaseUnreachableError(
            "The database does not answer: all connections are in use here."
        ) from error


# What SQLite's primary result codes ask of an operator.
_SQLITE_REFUSALS = {
    sqlite3.SQLITE_NOTADB: "DATABASE_URL names a file that is not an SQLite database",
    sqlite3.SQLITE_READONLY: "The database cannot be written: let this user write its file and its folder",
    sqlite3.SQLITE_CORRUPT: "The database's file is damaged: restore it from a backup",
}
_FULL = {sqlite3.SQLITE_FULL, "53100"}
FULL_DISK_WAIT_SECONDS = 30.0
# Of SQLSTATEs that pass: deadlock, serialization failure, lock timeout, statement timeout.
_GAVE_WAY, _TOO_BUSY = "gave way to another transaction", "was too busy"
_PASSING = {"40P01": _GAVE_WAY, "40001": _GAVE_WAY, "55P03": _TOO_BUSY, "57014": _TOO_BUSY}


def _understood(error: DatabaseError) -> AutomationError | None:
    """None for a bug: wrong SQL stays what it is.

    A column that is missing is taken for an older schema, without looking at the revision: our
    queries name mapped columns only, and the suite runs them on the newest schema. The driver's
    words are kept in case it is a bug.
    """
    lines = str(error.orig).strip().splitlines()
    reason = lines[0].rstrip(".") if lines else type(error.orig).__name__
    code = _code(error)
    if isinstance(code, int) and code in _SQLITE_REFUSALS:
        return PermanentError(f"{_SQLITE_REFUSALS[code]} ({reason}).")
    if code in _FULL:
        words = f"The database cannot grow: make room on its disk ({reason})."
        return DatabaseFullError(words, retry_after_seconds=FULL_DISK_WAIT_SECONDS)
    if code == "42P01" or "no such table" in reason:
        return DatabaseNotReadyError("The database has no tables yet: run `automation db upgrade`.")
    if code == "42703" or "no such column" in reason or "has no column named" in reason:
        return DatabaseNotReadyError(
            f"The database is of another version ({reason}): run `automation db upgrade`."
        )
    if isinstance(code, str) and code in _PASSING:
        return DatabaseBusyError(f"The database {_PASSING[code]}: {reason}.")
    is_away = (
        isinstance(error, OperationalError) and code != sqlite3.SQLITE_ERROR
    )  # wrong SQL, to SQLite's driver
    return DatabaseUnreachableError(f"The database does not answer: {reason}.") if is_away else None


def _code(error: DatabaseError) -> int | str | None:
    """SQLite's primary result code, PostgreSQL's SQLSTATE."""
    if isinstance(error.orig, sqlite3.Error):
        code = getattr(
            error.orig, "sqlite_errorcode", None
        )  # what the driver says by itself has none
        return None if code is None else code & 0xFF
    return getattr(error.orig, "sqlstate", None)
