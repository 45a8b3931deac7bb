"""Upgrading an empty database creates what the tables modules declare, on both databases, also
concurrently and repeatedly."""

import ast
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError

from automation_pipeline import migrations
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.migrations.regenerate import INITIAL, initial_revision
from automation_pipeline.migrations.schema_version import schema_version
from automation_pipeline.migrations.tables import METADATA
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.postgres import new_database
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes
from automation_pipeline_tests.storage.processes import look_in, upgrade

NEWEST = migrations.revisions()[-1]
# Queries for the parts of a schema, by database.
CATALOGUE = {
    "sqlite": "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE '%alembic_version%'",
    "postgresql": """
        SELECT 'relation', relkind::text || ' ' || relname, NULL FROM pg_class
            WHERE relnamespace = 'public'::regnamespace AND relkind <> 'i'
        UNION ALL SELECT 'column', attrelid::regclass || '.' || attname,
            concat_ws(' ', format_type(atttypid, atttypmod), attnotnull, attidentity, pg_get_expr(adbin, adrelid))
            FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
            LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
            WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attnum > 0
        UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
            FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        UNION ALL SELECT 'trigger', tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
    """,
}


@pytest.fixture
def empty_url(database_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if database_kind == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.db"
        return
    with new_database(request.getfixturevalue("postgres_server")) as url:
        yield url


@pytest.fixture
def empty(empty_url: str) -> Iterator[Database]:
    database = Database(empty_url)
    yield database
    database.dispose()


def differences(database: Database) -> list[object]:
    with database.engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), METADATA)


def catalogue(database: Database) -> set[tuple[str, str, str]]:
    with database.engine.connect() as connection:
        rows = connection.execute(text(CATALOGUE[database.dialect])).tuples().all()
    # The order of constraints in a statement has no meaning.
    defined = {
        (kind, name, " ".join(sorted((sql or "").replace(",", " ").split())))
        for kind, name, sql in rows
    }
    return {row for row in defined if "alembic_version" not in row[1]}


def test_an_upgraded_empty_database_matches_the_tables_modules(empty: Database) -> None:
    """Alembic compares columns and indexes; the catalogue also has checks, defaults, conditions and
    AUTOINCREMENT."""
    migrations.upgrade(empty)
    migrations.upgrade(empty)
    assert migrations.current(empty) == NEWEST
    assert differences(empty) == []
    migrated = catalogue(empty)
    with empty.engine.begin() as connection:
        METADATA.drop_all(connection)
        METADATA.create_all(connection)
    assert migrated == catalogue(empty)


def test_the_initial_revision_matches_its_generator() -> None:
    written, generated = (
        ast.unparse(ast.parse(source)) for source in (INITIAL.read_text(), initial_revision())
    )
    assert written == generated, "run `make initial-migration`"


def test_ids_of_deleted_rows_are_not_used_again(tmp_path: Path) -> None:
    """Keys of events, requests and Dagster runs contain ids, and outlive the rows."""
    database = Database(f"sqlite:///{tmp_path}/new.db")
    migrations.upgrade(database)
    inspector = inspect(database.engine)
    counted = {
        table.name for table in METADATA.sorted_tables if table.autoincrement_column is not None
    }
    with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        rows = connection.execute(
            "SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'"
        ).fetchall()
    assert {name for (name,) in rows} == counted
    assert counted <= set(inspector.get_table_names())
    database.dispose()


def test_processes_that_upgrade_an_empty_database_at_once_all_succeed(
    empty_url: str, empty: Database
) -> None:
    run_in_processes(upgrade, (empty_url,), (empty_url,), (empty_url,))
    assert migrations.current(empty) == NEWEST
    assert differences(empty) == []


def test_processes_that_open_a_new_sqlite_file_at_once_all_succeed(tmp_path: Path) -> None:
    """The first one switches the file to its write-ahead log, for which SQLite itself does not
    wait."""
    for number in range(15):
        run_in_processes(look_in, *[(f"sqlite:///{tmp_path}/{number}.db",)] * PROCESS_COUNT)


def test_foreign_keys_are_enforced_also_after_an_upgrade(empty: Database) -> None:
    migrations.upgrade(empty)
    with empty.transaction() as session:
        session.execute(text("CREATE TABLE parent (id INTEGER PRIMARY KEY)"))
        session.execute(
            text(
                "CREATE TABLE child (id INTEGER PRIMARY KEY, parent_id INTEGER REFERENCES parent (id))"
            )
        )
    with pytest.raises(IntegrityError), empty.transaction() as session:
        session.execute(text("INSERT INTO child (id, parent_id) VALUES (1, 1)"))


def test_an_upgrade_that_fails_leaves_the_database_as_it_was(empty: Database) -> None:
    migrations.upgrade(empty)
    with empty.transaction() as session:
        session.execute(text("DROP TABLE alembic_version"))
        session.execute(text("DROP TABLE api_tokens"))
    with pytest.raises(Exception, match="already exists"):
        migrations.upgrade(empty)
    assert migrations.current(empty) is None
    assert "api_tokens" not in inspect(empty.engine).get_table_names()
    if empty.dialect == "sqlite":
        with empty.reading() as session:
            assert session.scalar(text("PRAGMA foreign_keys")) == 1


@pytest.mark.parametrize(
    ("revision", "sentence"),
    [
        ("9999_later", "belongs to another version"),
        ("0011_production", "before the first release .* export"),
    ],
)
def test_a_database_of_another_version_stays_unchanged(
    database: Database, revision: str, sentence: str
) -> None:
    with database.transaction() as session:
        session.execute(
            text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision}
        )
    with pytest.raises(PermanentError, match=sentence):
        migrations.upgrade(database)
    assert migrations.current(database) == revision


def test_a_database_from_before_the_release_is_refused(
    database: Database,
) -> None:
    with database.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0002_automation'"))
    with pytest.raises(PermanentError, match="cannot be upgraded"):
        schema_version(database)
