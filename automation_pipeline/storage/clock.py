"""The database's clock and calendar as SQL expressions, so that all processes agree on when a lease
ends."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import ColumnElement, Float, Text, case, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from automation_pipeline.core.scheduling.zones import offsets_between
from automation_pipeline.storage.group_commit import once_per_group
from automation_pipeline.storage.types import UtcDateTime


class database_now(GenericFunction[datetime]):  # noqa: N801  an SQL function's name
    """The database's present plus the given seconds: `database_now(30.0)`."""

    type = UtcDateTime()
    inherit_cache = True

    def __init__(self, plus_seconds: float | ColumnElement[float] = 0.0) -> None:
        super().__init__(plus_seconds)


def database_time(session: Session) -> datetime:
    """The database's present as a value. Writes of one group share one instant."""
    return once_per_group(session, _database_time, _database_time)


def _database_time(session: Session) -> datetime:
    return datetime.fromtimestamp(session.scalars(_EPOCH).one(), UTC)


class database_epoch(GenericFunction[float]):  # noqa: N801  an SQL function's name
    """The database's present in seconds since 1970."""

    type = Float(53)
    inherit_cache = True


_EPOCH = select(database_epoch())


class epoch(GenericFunction[float]):  # noqa: N801  an SQL function's name
    """An instant in seconds since 1970, for arithmetic."""

    type = Float(53)
    inherit_cache = True


def now_sql(plus_seconds: str, *, postgres: bool) -> str:
    """The SQL of `database_now`, for statements that are written as text."""
    if postgres:
        return f"(clock_timestamp() + make_interval(secs => {plus_seconds}))"
    # Six decimals, as the values that SQLAlchemy writes: instants are compared as text on SQLite.
    return f"(strftime('%Y-%m-%d %H:%M:%f', 'now', ({plus_seconds}) || ' seconds') || '000')"


def epoch_sql(*, postgres: bool) -> str:
    """The SQL of `database_epoch`."""
    if postgres:
        return "extract(epoch from clock_timestamp())::double precision"
    # SQLite's clock has milliseconds; a day as a float differs by some 20 microseconds.
    return "round((julianday('now') - 2440587.5) * 86400.0, 3)"


@compiles(database_now, "postgresql")
def _now_on_postgres(element: database_now, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    return now_sql(compiler.process(element.clauses, **kw), postgres=True)


@compiles(database_now, "sqlite")
def _now_on_sqlite(element: database_now, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    return now_sql(compiler.process(element.clauses, **kw), postgres=False)


@compiles(database_epoch, "postgresql")
def _epoch_on_postgres(_element: database_epoch, _compiler: SQLCompiler, **_kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    return epoch_sql(postgres=True)


@compiles(database_epoch, "sqlite")
def _epoch_on_sqlite(_element: database_epoch, _compiler: SQLCompiler, **_kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    return epoch_sql(postgres=False)


@compiles(epoch, "postgresql")
def _of_on_postgres(element: epoch, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    return f"extract(epoch from {compiler.process(element.clauses, **kw)})::double precision"


@compiles(epoch, "sqlite")
def _of_on_sqlite(element: epoch, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    return f"((julianday({compiler.process(element.clauses, **kw)}) - 2440587.5) * 86400.0)"


def day_of(
    instant: ColumnElement[datetime], span: tuple[datetime, datetime], zone: ZoneInfo
) -> ColumnElement[str]:
    """`YYYY-MM-DD`. `span` holds the earliest and the latest of the instants."""
    (_, at_first), *later = offsets_between(*span, zone)
    if not later:
        return local_day(instant, at_first)
    return local_day(
        instant,
        case(*((instant >= since, offset) for since, offset in reversed(later)), else_=at_first),
    )


class local_day(GenericFunction[str]):  # noqa: N801  an SQL function's name
    """The day of an instant so many seconds ahead of UTC."""

    type = Text()
    inherit_cache = True

    def __init__(
        self, instant: ColumnElement[datetime], offset_seconds: ColumnElement[int] | int
    ) -> None:
        super().__init__(instant, offset_seconds)


@compiles(local_day, "postgresql")
def _on_postgres(element: local_day, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    instant, offset = (compiler.process(clause, **kw) for clause in element.clauses)
    return (
        f"to_char(({instant} AT TIME ZONE 'UTC') + make_interval(secs => {offset}), 'YYYY-MM-DD')"
    )


@compiles(local_day, "sqlite")
def _on_sqlite(element: local_day, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    instant, offset = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"strftime('%Y-%m-%d', {instant}, ({offset}) || ' seconds')"
