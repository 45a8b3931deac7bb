"""Statements that every fiche runs: made and compiled by SQLAlchemy once, then handed to the driver
as they are.

What SQLAlchemy does at each execution costs several times what the statement does. Here its types
still convert what goes in and comes out, its errors are raised and its listeners are told; but
nothing is loaded, flushed or expanded, and a column whose default Python makes has to be given.
"""

from collections import namedtuple
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

from sqlalchemy import BindParameter, ClauseElement, ColumnElement, Connection, Dialect
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.selectable import ReturnsRows

# The same on both databases, or made for the one that it runs on: told whether that is PostgreSQL.
Statement: TypeAlias = ClauseElement | Callable[[bool], ClauseElement]
Values: TypeAlias = Mapping[str, object]
# Any: what a column holds.
PreparedRow: TypeAlias = Any
_Convert: TypeAlias = Callable[[Any], Any]
_Given: TypeAlias = Sequence[object] | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PreparedResult:
    """The rows of a statement, with their columns' names, and how many it has changed."""

    rows: Sequence[PreparedRow]
    changed: int

    def __iter__(self) -> Iterator[PreparedRow]:
        return iter(self.rows)

    def first(self) -> PreparedRow | None:
        return self.rows[0] if self.rows else None

    def one(self) -> PreparedRow:
        [row] = self.rows
        return row

    def value(self) -> Any:  # noqa: ANN401  what its column holds
        """The first of the first row; None where there is no row."""
        return self.rows[0][0] if self.rows else None


def execute(session: Session, statement: Statement, values: Values) -> PreparedResult:
    connection = session.connection()
    ready = _ready(statement, tuple(values), connection.dialect, many=False)
    with _executed(connection, ready.sql, ready.given(values), many=False) as cursor:
        return PreparedResult(ready.read(cursor), cursor.rowcount)


def execute_each(session: Session, statement: Statement, rows: Sequence[Values]) -> None:
    """Once for each of the rows, which all have the same names."""
    if not rows:
        return
    connection = session.connection()
    ready = _ready(statement, tuple(rows[0]), connection.dialect, many=True)
    with _executed(connection, ready.sql, [ready.given(row) for row in rows], many=True):
        pass


@contextmanager
def _executed(
    connection: Connection, sql: str, given: _Given | Sequence[_Given], *, many: bool
) -> Generator[DBAPICursor]:
    driver = connection.dialect.loaded_dbapi
    try:
        with closing(connection.connection.cursor()) as cursor:
            for listen in connection.dispatch.before_cursor_execute:
                listen(connection, cursor, sql, given, None, many)
            (cursor.executemany if many else cursor.execute)(sql, cast("Any", given))
            yield cursor
    except driver.Error as error:
        hidden = DBAPIError.instance(
            sql, None, error, driver.Error, hide_parameters=True, dialect=connection.dialect
        )
        raise cast("BaseException", hidden) from error


# Far more than there are statements; whoever opens many databases, as tests do, keeps no more than
# these.
MOST_READY = 1_000


@lru_cache(MOST_READY)
def _ready(
    statement: Statement, names: tuple[str, ...], dialect: Dialect, *, many: bool
) -> "_Ready":
    made = (
        statement
        if isinstance(statement, ClauseElement)
        else statement(dialect.name == "postgresql")
    )
    compiled = made.compile(dialect=dialect, column_keys=list(names), for_executemany=many)
    return _Ready(made, cast("SQLCompiler", compiled), names)


class _Ready:
    """A statement of one dialect, for values of these names."""

    def __init__(self, made: ClauseElement, compiled: SQLCompiler, names: Sequence[str]) -> None:
        _check_given(compiled, names)
        self.sql, self._dialect, self._order = str(compiled), compiled.dialect, compiled.positiontup
        converts = {name: self._bind_convert(bind) for name, bind in compiled.binds.items()}
        self._converts = [
            (name, convert) for name, convert in converts.items() if convert and name in names
        ]
        fixed = {
            name: bind.effective_value for name, bind in compiled.binds.items() if name not in names
        }
        self._constants = {
            name: convert(value) if (convert := converts[name]) else value
            for name, value in fixed.items()
        }
        self._columns = _columns_of(made)
        self._row = _row_of([str(column.key) for column in self._columns])
        self._reads: list[tuple[int, _Convert]] | None = None  # known with the first answer

    def given(self, values: Values) -> _Given:
        whole = {**self._constants, **values}
        for name, convert in self._converts:
            whole[name] = convert(whole[name])
        return whole if self._order is None else tuple([whole[name] for name in self._order])

    def read(self, cursor: DBAPICursor) -> list[PreparedRow]:
        if not self._columns:
            return []
        if self._reads is None:
            self._reads = self._column_converts(cursor.description)
        if not self._reads:
            return list(map(self._row, cursor.fetchall()))
        return [self._row(_converted(row, self._reads)) for row in cursor.fetchall()]

    def _bind_convert(self, bind: BindParameter[Any]) -> _Convert | None:
        return bind.type.dialect_impl(self._dialect).bind_processor(self._dialect)

    def _column_converts(self, told: Sequence[Sequence[Any]]) -> list[tuple[int, _Convert]]:
        found = [
            column.type.dialect_impl(self._dialect).result_processor(self._dialect, of_driver[1])
            for column, of_driver in zip(self._columns, told, strict=True)
        ]
        return [(place, convert) for place, convert in enumerate(found) if convert]


def _columns_of(made: ClauseElement) -> list[ColumnElement[Any]]:
    return list(made.exported_columns) if isinstance(made, ReturnsRows) else []


def _row_of(names: Sequence[str]) -> Callable[[Iterable[object]], PreparedRow]:
    """What makes a row: columns without a name of their own are there by their place."""
    return namedtuple("Row", names, rename=True)._make  # pyright: ignore  types are the statement's


def _converted(row: Sequence[object], converts: Sequence[tuple[int, _Convert]]) -> list[object]:
    values = list(row)
    for place, convert in converts:
        values[place] = convert(values[place])
    return values


def _check_given(compiled: SQLCompiler, names: Sequence[str]) -> None:
    """What only SQLAlchemy's own execution would fill in is said when the statement is first
    run."""
    defaults = [column.key for column in (*compiled.insert_prefetch, *compiled.update_prefetch)]
    lacking = [name for name, bind in compiled.binds.items() if bind.required and name not in names]
    if defaults or lacking or compiled.post_compile_params:
        raise TypeError(
            f"Not given, or not as it has to be: {[*defaults, *lacking, *compiled.post_compile_params]}."
        )
