"""Migrations of the database. `upgrade` applies the missing revisions; concurrent upgrades apply
them once."""

import re
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.storage.database import Database, translated_errors

_ADVISORY_LOCK = 7_310_201_811
# Revisions before the first release, which one initial revision replaced.
_BEFORE_RELEASE = re.compile(
    r"0001_ground|0002_automation|0003_fiches|0004_transcription|0005_audits|0006_automation_whole|0007_edges"
    r"|0008_pricing|0009_org_jobs|0010_enrichment|0011_production"
)


def upgrade(database: Database, revision: str = "head") -> None:
    database.create_file()
    refuse_unreleased(current(database))
    with _connection(database) as connection:
        try:
            command.upgrade(_config(connection), revision)
        except CommandError as error:
            raise PermanentError(
                f"The database belongs to another version of this program: {error}."
            ) from None


def refuse_unreleased(revision: str | None) -> None:
    """Raises PermanentError for a database of a version before the first release; its message says what to
    do."""
    if revision is not None and _BEFORE_RELEASE.fullmatch(revision):
        raise PermanentError(
            f"The database is of a version before the first release ({revision}), which cannot be upgraded: export "
            "what you need with that version (`automation audit-configs export`, `automation schedules list --json`), "
            "let DATABASE_URL name a new, empty database and DAGSTER_HOME a new folder, and run "
            "`automation db upgrade`."
        )


def current(database: Database) -> str | None:
    """The revision of the database; None for an empty one."""
    with translated_errors(), database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def revisions() -> list[str]:
    """All revisions, oldest first."""
    return [script.revision for script in reversed(list(_scripts().walk_revisions()))]


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


@contextmanager
def _connection(database: Database) -> Generator[Connection]:
    """One transaction for the whole upgrade, under a lock that allows one upgrade at a time."""
    with (
        translated_errors(),
        database.engine.connect() as connection,
        _foreign_keys_off(connection),
        connection.begin(),
    ):
        if database.dialect == "postgresql":
            connection.execute(
                text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ADVISORY_LOCK}
            )
        yield connection


@contextmanager
def _foreign_keys_off(connection: Connection) -> Generator[None]:
    """On SQLite, rebuilding a table drops the old one, which must not cascade. Works only outside
    transactions."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        yield
        return
    driver.execute("PRAGMA foreign_keys=OFF")
    try:
        yield
    finally:  # the connection goes back to the pool, also after an upgrade that failed
        driver.execute("PRAGMA foreign_keys=ON")
