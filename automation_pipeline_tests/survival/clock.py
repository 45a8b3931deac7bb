"""Emulates a jump of the database's clock: every stored time becomes older by the same number of
seconds."""

from sqlalchemy import Column, text

from automation_pipeline.migrations.tables import TABLE_MODULES
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.types import Table, UtcDateTime

assert TABLE_MODULES  # the import registers every table
# Columns with times that are stored as numbers of seconds.
_NUMBERS = {"rate_limits": "paid_until"}


def shift_clock(database: Database, seconds: float) -> None:
    """Change all times in one transaction. The clocks of processes do not change."""
    with database.transaction() as session:
        for table in Table.metadata.sorted_tables:
            moved = [_earlier(column, database.dialect, seconds) for column in table.columns]
            number = _NUMBERS.get(table.name)
            changes = [change for change in moved if change] + (
                [f"{number} = {number} - {seconds}"] if number else []
            )
            if changes:
                session.execute(text(f"UPDATE {table.name} SET {', '.join(changes)}"))  # noqa: S608  names from the tables module


def _earlier(column: "Column[object]", dialect: str, seconds: float) -> str | None:
    if not isinstance(column.type, UtcDateTime):
        return None
    name = column.name
    if dialect == "postgresql":
        return f"{name} = {name} - make_interval(secs => {seconds})"
    return f"{name} = strftime('%Y-%m-%d %H:%M:%f', {name}, '{-seconds} seconds') || '000'"
