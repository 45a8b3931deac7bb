"""Statements over many rows, locks, and the database's clock, for SQLite and PostgreSQL."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

from sqlalchemy import (
    ARRAY,
    ClauseElement,
    ColumnElement,
    Dialect,
    Float,
    Text,
    TextClause,
    TypeDecorator,
    any_,
    bindparam,
    case,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from automation_pipeline.core.scheduling.zones import offsets_between
from automation_pipeline.storage.group_commit import once_per_group
from automation_pipeline.storage.types import Table, UtcDateTime

Insert: TypeAlias = postgresql.Insert | sqlite.Insert
Item = TypeVar("Item")
Value = TypeVar("Value", str, int)

# Execution options: read rows again that the session has already; leave the session's rows as they
# are when an UPDATE changes them in the database.
FRESH = {"populate_existing": True}
UNSYNCHRONIZED = {"synchronize_session": False}


def is_postgres(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"


def insert_into(session: Session, table: type[Table]) -> Insert:
    """The dialect's own INSERT, which supports ON CONFLICT."""
    dialects_insert = postgresql.insert if is_postgres(session) else sqlite.insert
    return dialects_insert(table.__table__)  # type: ignore[arg-type]  # declared as FromClause, always a Table


class _Document(TypeDecorator[Sequence[str | int]]):
    """A list as JSON text, for SQLite, which has no arrays."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Sequence[str | int] | None, dialect: Dialect) -> str:  # noqa: ARG002  SQLAlchemy's hook
        return json.dumps(list(value or ()))


def among(
    session: Session,
    column: InstrumentedAttribute[Value | None] | ColumnElement[Value],
    values: Iterable[Value],
) -> ColumnElement[bool]:
    """`column IN values` with all values in one parameter, because databases limit the number of
    parameters."""
    if is_postgres(session):
        return column == any_(
            bindparam("among", list(values), type_=ARRAY(column.type), unique=True)
        )
    given = bindparam("among", list(values), type_=_Document(), unique=True)
    return column.in_(select(func.json_each(given).table_valued("value").c.value))


def where_given(
    *wanted: tuple[InstrumentedAttribute[Any], object],
) -> list[ColumnElement[bool]]:
    return [column == value for column, value in wanted if value is not None]


def insert_rows(session: Session, table: type[Table], rows: Sequence[Mapping[str, object]]) -> None:
    if rows:
        session.connection().execute(insert(table), [dict(row) for row in rows])


def upsert(
    session: Session,
    table: type[Table],
    rows: Sequence[Mapping[str, object]],
    *,
    key: Sequence[str],
    fields: Sequence[str] = (),
    where: ColumnElement[bool] | None = None,
) -> None:
    """Insert the rows. Where `key` exists and `where` is true, overwrite `fields`; without fields,
    leave the row unchanged.

    All rows have the same fields, and are written by one statement in the caller's transaction. On
    PostgreSQL they are written in the order of their keys, so that two writers of the same rows
    wait for each other instead of a deadlock. Of two rows with the same key, the later one is used.
    """
    if not rows:
        return
    in_order = (
        sorted(rows, key=lambda row: [str(row[field]) for field in key])
        if is_postgres(session)
        else rows
    )
    # SQLAlchemy compiles an INSERT with ON CONFLICT each time. As text it is compiled once.
    if where is None and _can_be_text(table, rows[0]):
        statement = _upsert_text(table, tuple(rows[0]), tuple(key), tuple(fields))
    else:
        insertion = insert_into(session, table)
        statement = insertion.on_conflict_do_nothing(index_elements=list(key))
        if fields:
            changes = {field: insertion.excluded[field] for field in fields}
            statement = insertion.on_conflict_do_update(
                index_elements=list(key), set_=changes, where=where
            )
    session.connection().execute(statement, [dict(row) for row in in_order])


def _can_be_text(table: type[Table], row: Mapping[str, object]) -> bool:
    """Whether no column needs a default of the table, and no value is an SQL expression."""
    defaults = [column.key for column in table.__table__.columns if column.default is not None]
    return all(key in row for key in defaults) and not any(
        isinstance(value, ClauseElement) for value in row.values()
    )


@cache
def _upsert_text(
    table: type[Table], columns: tuple[str, ...], key: tuple[str, ...], fields: tuple[str, ...]
) -> TextClause:
    changes = ", ".join(f"{field} = excluded.{field}" for field in fields)
    values = ", ".join(f":{column}" for column in columns)
    statement = text(
        f"INSERT INTO {table.__tablename__} ({', '.join(columns)}) VALUES ({values}) "  # noqa: S608  names of tables and columns
        f"ON CONFLICT ({', '.join(key)}) DO {f'UPDATE SET {changes}' if changes else 'NOTHING'}"
    )
    types = table.__table__.columns
    return statement.bindparams(*(bindparam(name, type_=types[name].type) for name in columns))


def rounds(items: Iterable[Item], key: Callable[[Item], object]) -> Iterator[list[Item]]:
    """Lists in which no key occurs twice, for statements over many rows: the second item of a key
    sees what the first one has written."""
    left = list(items)
    while left:
        first: dict[object, Item] = {}
        left = [item for item in left if first.setdefault(key(item), item) is not item]
        yield list(first.values())


def advisory_lock(session: Session, name: str) -> None:
    """Hold the lock until the transaction ends. A second transaction waits, and then sees what the
    first one has written."""
    if is_postgres(session):  # SQLite has only one writer
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))


class database_now(GenericFunction[datetime]):  # noqa: N801  the name of the SQL function
    """The database's present plus some seconds: `database_now(30.0)`."""

    type = UtcDateTime()
    inherit_cache = True

    def __init__(self, plus_seconds: float | ColumnElement[float] = 0.0) -> None:
        super().__init__(plus_seconds)


class database_epoch(GenericFunction[float]):  # noqa: N801  the name of the SQL function
    """The database's present in seconds since 1970."""

    type = Float(53)
    inherit_cache = True


class epoch(GenericFunction[float]):  # noqa: N801  the name of the SQL function
    """An instant in seconds since 1970, for arithmetic."""

    type = Float(53)
    inherit_cache = True


class local_day(GenericFunction[str]):  # noqa: N801  the name of the SQL function
    """The day of an instant in a zone that is so many seconds ahead of UTC."""

    type = Text()
    inherit_cache = True

    def __init__(
        self, instant: ColumnElement[datetime], offset_seconds: ColumnElement[int] | int
    ) -> None:
        super().__init__(instant, offset_seconds)


# Templates, filled with the arguments of the function. On SQLite instants have six decimals,
# as SQLAlchemy writes them, because they are compared as text; its clock has milliseconds, and a day
# as a float differs by some 20 microseconds.
_SQL: Mapping[str, Mapping[str, str]] = {
    "database_now": {
        "postgresql": "(clock_timestamp() + make_interval(secs => {0}))",
        "sqlite": "(strftime('%Y-%m-%d %H:%M:%f', 'now', ({0}) || ' seconds') || '000')",
    },
    "database_epoch": {
        "postgresql": "extract(epoch from clock_timestamp())::double precision",
        "sqlite": "round((julianday('now') - 2440587.5) * 86400.0, 3)",
    },
    "epoch": {
        "postgresql": "extract(epoch from {0})::double precision",
        "sqlite": "((julianday({0}) - 2440587.5) * 86400.0)",
    },
    "local_day": {
        "postgresql": "to_char(({0} AT TIME ZONE 'UTC') + make_interval(secs => {1}), 'YYYY-MM-DD')",
        "sqlite": "strftime('%Y-%m-%d', {0}, ({1}) || ' seconds')",
    },
}


@compiles(database_now)
@compiles(database_epoch)
@compiles(epoch)
@compiles(local_day)
def _compile(element: GenericFunction[Any], compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    arguments = (compiler.process(clause, **kw) for clause in element.clauses)
    return _SQL[element.name][compiler.dialect.name].format(*arguments)


def now_sql(plus_seconds: str, *, postgres: bool) -> str:
    return _SQL["database_now"]["postgresql" if postgres else "sqlite"].format(plus_seconds)


def epoch_sql(*, postgres: bool) -> str:
    return _SQL["database_epoch"]["postgresql" if postgres else "sqlite"]


def database_time(session: Session) -> datetime:
    """The database's present as a value. All writes of one group get the same instant."""
    return once_per_group(session, database_epoch, _database_time)


def _database_time(session: Session) -> datetime:
    return datetime.fromtimestamp(session.scalars(_EPOCH).one(), UTC)


_EPOCH = select(database_epoch())


def day_of(
    instant: ColumnElement[datetime], span: tuple[datetime, datetime], zone: ZoneInfo
) -> ColumnElement[str]:
    """`YYYY-MM-DD`. `span` contains the earliest and the latest instant."""
    (_, at_first), *later = offsets_between(*span, zone)
    if not later:
        return local_day(instant, at_first)
    offsets = ((instant >= since, offset) for since, offset in reversed(later))
    return local_day(instant, case(*offsets, else_=at_first))
