"""Statements over many rows or values, and locks, the same on both databases."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import (
    ARRAY,
    BindParameter,
    ClauseElement,
    ColumnElement,
    Dialect,
    Text,
    TypeDecorator,
    any_,
    bindparam,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import InstrumentedAttribute, Session

from automation_pipeline.storage.prepared import execute_each
from automation_pipeline.storage.types import Table

Insert: TypeAlias = postgresql.Insert | sqlite.Insert
Value = TypeVar("Value", str, int)


def is_postgres(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"


def insert_into(session: Session, table: type[Table]) -> Insert:
    return dialects_insert(table, postgres=is_postgres(session))


def dialects_insert(table: type[Table], *, postgres: bool) -> Insert:
    """The dialect's own, which knows ON CONFLICT."""
    return postgresql.insert(table.__table__) if postgres else sqlite.insert(table.__table__)  # type: ignore[arg-type]  # declared as FromClause, always a Table


class _Document(TypeDecorator[Sequence[str | int]]):
    """A list as one text, for SQLite, which has no arrays."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Sequence[str | int] | None, dialect: Dialect) -> str:  # noqa: ARG002  theirs
        return json.dumps(list(value or ()))


def listed(name: str, *, postgres: bool) -> ColumnElement[str]:
    """The texts of the list that is given under this name when the statement is run, as a column to
    select from."""
    if postgres:
        return func.unnest(bindparam(name, type_=ARRAY(Text()))).column_valued("value")
    return func.json_each(bindparam(name, type_=_Document())).table_valued("value").c.value


def among_given(
    column: InstrumentedAttribute[Value | None] | ColumnElement[Value], name: str, *, postgres: bool
) -> ColumnElement[bool]:
    """As `among`, of the list that is given under this name when the statement is run."""
    return _among(column, postgres, partial(bindparam, name))


def among(
    session: Session,
    column: InstrumentedAttribute[Value | None] | ColumnElement[Value],
    values: Iterable[Value],
) -> ColumnElement[bool]:
    """`column IN values`, however many: they travel as one parameter, where each of an IN's counts
    against a limit."""
    return _among(
        column, is_postgres(session), partial(bindparam, "among", list(values), unique=True)
    )


def where_given(
    *wanted: tuple[InstrumentedAttribute[Any], object],
) -> list[ColumnElement[bool]]:
    """`column = value` for every pair whose value is not None."""
    return [column == value for column, value in wanted if value is not None]


def _among(
    column: InstrumentedAttribute[Value | None] | ColumnElement[Value],
    postgres: bool,
    given: Callable[..., BindParameter[Any]],
) -> ColumnElement[bool]:
    if postgres:
        return column == any_(given(type_=ARRAY(column.type)))
    return column.in_(
        select(func.json_each(given(type_=_Document())).table_valued("value").c.value)
    )


def upsert(
    session: Session,
    table: type[Table],
    rows: Sequence[Mapping[str, object]],
    *,
    key: Sequence[str],
    fields: Sequence[str] = (),
    where: ColumnElement[bool] | None = None,
) -> None:
    """Insert the rows; where `key` exists already, overwrite `fields` (none: leave the row as it
    is) if `where` holds.

    All rows have the same fields. One prepared statement runs over all of them, inside the caller's
    transaction. On PostgreSQL in the order of their key: two writers of the same rows then wait for
    each other instead of locking crosswise, which would end one of them. Of two rows with one key
    the later wins.
    """
    if not rows:
        return
    in_order = (
        sorted(rows, key=lambda row: [str(row[field]) for field in key])
        if is_postgres(session)
        else rows
    )
    if where is None and not any(isinstance(value, ClauseElement) for value in rows[0].values()):
        execute_each(session, _plain_upsert(table, tuple(key), tuple(fields)), in_order)
    else:
        statement = _upsert(table, key, fields, where, postgres=is_postgres(session))
        session.connection().execute(statement, [dict(row) for row in in_order])


@cache
def _plain_upsert(
    table: type[Table], key: tuple[str, ...], fields: tuple[str, ...]
) -> Callable[[bool], ClauseElement]:
    return lambda postgres: _upsert(table, key, fields, None, postgres=postgres)


def _upsert(
    table: type[Table],
    key: Sequence[str],
    fields: Sequence[str],
    where: ColumnElement[bool] | None,
    *,
    postgres: bool,
) -> Insert:
    insert = dialects_insert(table, postgres=postgres)
    if not fields:
        return insert.on_conflict_do_nothing(index_elements=list(key))
    changes = {field: insert.excluded[field] for field in fields}
    return insert.on_conflict_do_update(index_elements=list(key), set_=changes, where=where)


def advisory_lock(session: Session, name: str) -> None:
    """To the end of the transaction: the second of two at once finds what the first has written."""
    if is_postgres(session):  # SQLite has one writer anyhow
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))
