"""The one metadata that every table of the system belongs to."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.schema import SchemaItem

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Table(DeclarativeBase):
    """Base of the mapped tables."""

    metadata = sa.MetaData(naming_convention=NAMING)

    @classmethod
    def __table_cls__(
        cls,
        name: str,
        metadata: sa.MetaData,
        *items: SchemaItem,
        **options: Any,  # noqa: ANN401  SQLAlchemy's own options
    ) -> sa.Table:
        """SQLite reuses the ids of deleted rows unless AUTOINCREMENT is declared, and keys are built on ids."""
        table = sa.Table(name, metadata, *items, **options)
        if table.autoincrement_column is not None:
            table.dialect_options["sqlite"]["autoincrement"] = True
        return table
