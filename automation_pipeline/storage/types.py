"""The base class of all tables, and column types with the same meaning on SQLite and PostgreSQL."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import ARRAY, JSON, BigInteger, DateTime, Dialect, Integer, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Table(DeclarativeBase):
    metadata = sa.MetaData(naming_convention=NAMING)

    @classmethod
    def __table_cls__(
        cls,
        name: str,
        metadata: sa.MetaData,
        *items: SchemaItem,
        **options: Any,  # noqa: ANN401  SQLAlchemy's own options
    ) -> sa.Table:
        """SQLite reuses the ids of deleted rows unless AUTOINCREMENT is declared, and keys are
        built on ids."""
        table = sa.Table(name, metadata, *items, **options)
        if table.autoincrement_column is not None:
            table.dialect_options["sqlite"]["autoincrement"] = True
        return table


JsonObject: TypeAlias = Mapping[str, object]

# SQLite generates ids only for a column declared INTEGER.
BigId = BigInteger().with_variant(Integer(), "sqlite")
Json = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
TextList = JSON().with_variant(ARRAY(Text()), "postgresql")
BigIntList = JSON().with_variant(ARRAY(BigInteger()), "postgresql")


class UtcDateTime(TypeDecorator[datetime]):
    """Stores aware instants, and returns them in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002  SQLAlchemy's hook
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"An instant needs a time zone, got {value!r}")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002  SQLAlchemy's hook
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
