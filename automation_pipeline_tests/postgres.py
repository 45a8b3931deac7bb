"""Databases on the PostgreSQL server of the suite: empty ones, and a migrated one that tests reuse."""

import uuid
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from automation_pipeline import migrations
from automation_pipeline.storage.database import Database

# Every statement that creates, alters or drops a table changes the version (xmin) of one of these rows.
# Ids of PostgreSQL's own objects are below 16384.
_SCHEMA_VERSION = """
SELECT count(*), max(xmin::text::bigint), (SELECT string_agg(version_num, ' ') FROM alembic_version) FROM (
    SELECT xmin FROM pg_class WHERE oid >= 16384
    UNION ALL SELECT xmin FROM pg_attribute WHERE attrelid >= 16384
    UNION ALL SELECT xmin FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT xmin FROM pg_index WHERE indexrelid >= 16384
    UNION ALL SELECT xmin FROM pg_trigger WHERE oid >= 16384
    UNION ALL SELECT xmin FROM pg_proc WHERE oid >= 16384
) AS catalogue
"""
_DISCONNECT_OTHERS = """
SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
# Truncates only tables with pages on disk, and restarts every sequence, because a rolled-back insert
# moves a sequence too.
_EMPTY_TABLES = """
DO $$ DECLARE relation regclass; used_tables text; BEGIN
    FOR relation IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
                    AND relname <> 'alembic_version' AND pg_relation_size(oid) > 0 LOOP
        used_tables := concat_ws(', ', used_tables, relation::text);
    END LOOP;
    IF used_tables <> '' THEN
        EXECUTE 'TRUNCATE ' || used_tables || ' CASCADE';
    END IF;
    FOR relation IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'S' LOOP
        PERFORM setval(relation, 1, false);
    END LOOP;
END $$
"""


@contextmanager
def new_database(server: str) -> Generator[str]:
    """Create an empty database, and yield its URL. The database is dropped at the end."""
    name = f"test_{uuid.uuid4().hex}"
    _on_server(server, "CREATE DATABASE {}", name)
    try:
        yield (
            make_url(server)
            .set(drivername="postgresql", database=name)
            .render_as_string(hide_password=False)
        )
    finally:
        _on_server(server, "DROP DATABASE {} WITH (FORCE)", name)


def _on_server(server: str, statement: str, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))


@contextmanager
def reusable_database(server: str) -> Generator["ReusableDatabase"]:
    database = ReusableDatabase(server)
    try:
        yield database
    finally:
        database.drop()


class ReusableDatabase:
    """A migrated database that one test after the other uses, because creating one takes a third of a
    second."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._exits = ExitStack()
        self._url = ""
        self._schema_version: object = None

    def reset(self) -> str:
        """Disconnect all clients, empty all tables, and return the URL. A database whose schema was
        changed is created again."""
        if not self._empty_if_unchanged():
            self.drop()
            self._url = self._exits.enter_context(new_database(self._server))
            database = Database(self._url)
            migrations.upgrade(database)
            database.dispose()
            with psycopg.connect(self._url, autocommit=True) as connection:
                self._schema_version = connection.execute(_SCHEMA_VERSION).fetchone()
        return self._url

    def drop(self) -> None:
        self._exits.close()

    def _empty_if_unchanged(self) -> bool:
        """Return False without a change if there is no database yet, or if its schema has changed."""
        if self._schema_version is None:
            return False
        with suppress(psycopg.Error), psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(_DISCONNECT_OTHERS)
            if connection.execute(_SCHEMA_VERSION).fetchone() == self._schema_version:
                connection.execute(_EMPTY_TABLES)
                self._schema_version = connection.execute(_SCHEMA_VERSION).fetchone()
                return True
        return False
