"""How long it took from one instant to another, as an SQL expression, the same on both databases."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Float
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

MaybeInstant = ColumnElement[datetime | None] | InstrumentedAttribute[datetime | None]


class elapsed_milliseconds(GenericFunction[float]):  # noqa: N801  an SQL function's name
    """`elapsed_milliseconds(since, until)`; NULL if either is."""

    type = Float(53)
    inherit_cache = True

    def __init__(self, since: MaybeInstant, until: MaybeInstant) -> None:
        super().__init__(since, until)


@compiles(elapsed_milliseconds, "postgresql")
def _on_postgres(element: elapsed_milliseconds, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    since, until = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"(extract(epoch from ({until} - {since}))::double precision * 1000.0)"


@compiles(elapsed_milliseconds, "sqlite")
def _on_sqlite(element: elapsed_milliseconds, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401  SQLAlchemy's hook
    since, until = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"round((julianday({until}) - julianday({since})) * 86400000.0)"
