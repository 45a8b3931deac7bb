"""Databases of the suite's PostgreSQL: one that is empty, and a migrated one that is tidied up
between tests."""

import uuid
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from automation_pipeline import migrations
from automation_pipeline.storage.database import Database

# Any statement that creates, alters or drops a table leaves a new version of these rows. Ids of
# PostgreSQL's own objects are below 16384.
_SHAPE = """
SELECT count(*), max(xmin::text::bigint), (SELECT string_agg(version_num, ' ') FROM alembic_version) FROM (
    SELECT xmin FROM pg_class WHERE oid >= 16384
    UNION ALL SELECT xmin FROM pg_attribute WHERE attrelid >= 16384
    UNION ALL SELECT xmin FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT xmin FROM pg_index WHERE indexrelid >= 16384
    UNION ALL SELECT xmin FROM pg_trigger WHERE oid >= 16384
    UNION ALL SELECT xmin FROM pg_proc WHERE oid >= 16384
) AS catalogue
"""
_SEND_AWAY = """
SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
# What was in use is as new afterwards, on disk and to the planner; a sequence may have moved
# without its table.
_FORGET = """
DO $$ DECLARE named regclass; all_used text; BEGIN
    FOR named IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
                    AND relname <> 'alembic_version' AND pg_relation_size(oid) > 0 LOOP
        all_used := concat_ws(', ', all_used, named::text);
    END LOOP;
    IF all_used <> '' THEN
        EXECUTE 'TRUNCATE ' || all_used || ' CASCADE';
    END IF;
    FOR named IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'S' LOOP
        PERFORM setval(named, 1, false);
    END LOOP;
END $$
"""


@contextmanager
def new_database(server: str) -> Generator[str]:
    """The URL of a database of its own, dropped at the end."""
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
def room(server: str) -> Generator["Room"]:
    made = Room(server)
    try:
        yield made
    finally:
        made.leave()


class Room:
    """A migrated database, for one test after the other: to create one takes the server a third of
    a second."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._own = ExitStack()
        self._url = ""
        self._shape: object = None

    def tidy(self) -> str:
        """The URL, with every table as the migrations made it and nobody connected, whatever the
        last test did."""
        if not self._is_tidied():
            self.leave()
            self._url = self._own.enter_context(new_database(self._server))
            database = Database(self._url)
            migrations.upgrade(database)
            database.dispose()
            with psycopg.connect(self._url, autocommit=True) as connection:
                self._shape = connection.execute(_SHAPE).fetchone()
        return self._url

    def leave(self) -> None:
        self._own.close()

    def _is_tidied(self) -> bool:
        """False where a test has changed the tables themselves, or what the migrations know of
        them."""
        if self._shape is None:
            return False
        with suppress(psycopg.Error), psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(_SEND_AWAY)
            if connection.execute(_SHAPE).fetchone() == self._shape:
                connection.execute(_FORGET)
                self._shape = connection.execute(_SHAPE).fetchone()
                return True
        return False
