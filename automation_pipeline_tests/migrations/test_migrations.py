"""Any earlier revision reaches the newest, on both databases, and what is reached is what the models say."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError

from automation_pipeline import migrations
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.migrations.tables import METADATA
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.postgres import new_database
from automation_pipeline_tests.processes import CREW, at_once
from automation_pipeline_tests.storage.processes import look_in, upgrade

REVISIONS = migrations.revisions()


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


def check_constraints(database: Database) -> dict[str, set[str | None]]:
    inspector = inspect(database.engine)
    return {
        table: {check["name"] for check in inspector.get_check_constraints(table)}
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


def test_an_empty_database_becomes_what_the_models_say(empty: Database) -> None:
    assert migrations.current(empty) is None
    migrations.upgrade(empty)
    assert migrations.current(empty) == REVISIONS[-1]
    assert differences(empty) == []


@pytest.mark.parametrize("revision", REVISIONS)
def test_each_earlier_revision_becomes_what_the_models_say(empty: Database, revision: str) -> None:
    migrations.upgrade(empty, revision)
    assert migrations.current(empty) == revision
    migrations.upgrade(empty)
    assert migrations.current(empty) == REVISIONS[-1]
    assert differences(empty) == []


def test_upgrading_again_changes_nothing(empty: Database) -> None:
    migrations.upgrade(empty)
    migrations.upgrade(empty)
    assert migrations.current(empty) == REVISIONS[-1]


def test_the_checks_of_the_models_are_in_the_database(empty: Database) -> None:
    """Alembic does not compare check constraints: a database made from the models has the same by name."""
    migrations.upgrade(empty)
    migrated = check_constraints(empty)
    with empty.engine.begin() as connection:
        METADATA.drop_all(connection)
        METADATA.create_all(connection)
    assert migrated == check_constraints(empty)


@pytest.mark.parametrize("_again", range(3))
def test_two_processes_upgrading_an_empty_database_at_once_both_succeed(
    empty_url: str, empty: Database, _again: int
) -> None:
    at_once(upgrade, (empty_url,), (empty_url,), (empty_url,))
    assert migrations.current(empty) == REVISIONS[-1]
    assert differences(empty) == []


def test_processes_opening_one_new_sqlite_file_at_once_all_get_in(tmp_path: Path) -> None:
    """The first of them switches the file to its write-ahead log, for which SQLite itself does not wait."""
    for number in range(60):
        at_once(look_in, *[(f"sqlite:///{tmp_path}/{number}.db",)] * CREW)


def test_foreign_keys_are_enforced_also_after_an_upgrade(empty: Database) -> None:
    migrations.upgrade(empty)
    with empty.transaction() as session:
        session.execute(text("CREATE TABLE parent (id INTEGER PRIMARY KEY)"))
        session.execute(text("CREATE TABLE child (id INTEGER PRIMARY KEY, parent_id INTEGER REFERENCES parent (id))"))
    with pytest.raises(IntegrityError), empty.transaction() as session:
        session.execute(text("INSERT INTO child (id, parent_id) VALUES (1, 1)"))


def test_an_upgrade_that_fails_leaves_the_database_as_it_was(empty: Database) -> None:
    migrations.upgrade(empty, REVISIONS[0])
    with empty.transaction() as session:
        session.execute(text("DROP TABLE alembic_version"))
    with pytest.raises(Exception, match="already exists"):
        migrations.upgrade(empty)
    assert migrations.current(empty) is None
    if empty.dialect == "sqlite":
        with empty.reading() as session:
            assert session.scalar(text("PRAGMA foreign_keys")) == 1


def test_a_database_of_a_later_version_is_left_alone(database: Database) -> None:
    with database.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999_later'"))
    with pytest.raises(PermanentError, match="another version"):
        migrations.upgrade(database)
