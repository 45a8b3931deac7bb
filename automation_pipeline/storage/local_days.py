"""The calendar day of an instant in a zone, as SQL. The offsets are Python's: SQLite has no zones, and two databases
with two zone databases would put the same audit on two days."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import ColumnElement, Text, case
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from automation_pipeline.core.zone_offsets import offsets_between


def day_of(instant: ColumnElement[datetime], span: tuple[datetime, datetime], zone: ZoneInfo) -> ColumnElement[str]:
    """`YYYY-MM-DD`. `span` holds the earliest and the latest of the instants."""
    (_, at_first), *later = offsets_between(*span, zone)
    if not later:
        return local_day(instant, at_first)
    return local_day(instant, case(*((instant >= since, offset) for since, offset in reversed(later)), else_=at_first))


class local_day(GenericFunction[str]):  # noqa: N801  an SQL function's name
    """The day of an instant so many seconds ahead of UTC."""

    type = Text()
    inherit_cache = True

    def __init__(self, instant: ColumnElement[datetime], offset_seconds: ColumnElement[int] | int) -> None:
        super().__init__(instant, offset_seconds)


@compiles(local_day, "postgresql")
def _on_postgres(element: local_day, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    instant, offset = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"to_char(({instant} AT TIME ZONE 'UTC') + make_interval(secs => {offset}), 'YYYY-MM-DD')"


@compiles(local_day, "sqlite")
def _on_sqlite(element: local_day, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    instant, offset = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"strftime('%Y-%m-%d', {instant}, ({offset}) || ' seconds')"
