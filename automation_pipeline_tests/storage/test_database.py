"""The unit of work: all or nothing, readers that write nothing, and errors a person can read."""

from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.storage.database import (
    Database,
    DatabaseFullError,
    DatabaseNotReadyError,
    DatabaseUnreachableError,
    parse_url,
)
from automation_pipeline_tests.tables import every_case


def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    def write_and_fail() -> None:
        with database.transaction() as session:
            session.execute(text("INSERT INTO rate_limits (key, paid_until) VALUES ('k', 1)"))
            raise LookupError

    with pytest.raises(LookupError):
        write_and_fail()
    with database.reading() as session:
        assert session.scalar(text("SELECT count(*) FROM rate_limits")) == 0


def test_a_database_without_tables_says_what_to_run(tmp_path: Path) -> None:
    empty = Database(f"sqlite:///{tmp_path}/empty.db")
    empty.create_file()
    with (
        pytest.raises(DatabaseNotReadyError, match="automation db upgrade"),
        empty.reading() as session,
    ):
        session.execute(text("SELECT * FROM leases"))


def test_a_postgres_that_is_not_there_is_one_sentence() -> None:
    gone = Database("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnreachableError, match="The database does not answer") as caught:
        gone.ping()
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but long enough to be taken for one " * 30)
    with pytest.raises(PermanentError, match="not an SQLite database"):
        Database(f"sqlite:///{tmp_path}/notes.txt").ping()


def statement_fails(
    database: Database, error: type[Exception], statement: str, *before: str
) -> str:
    def run() -> None:
        with database.transaction() as session:
            for each in (*before, statement):
                session.execute(text(each))

    with pytest.raises(error) as caught:
        run()
    return str(caught.value)


INSERT = "INSERT INTO rate_limits (key, paid_until) VALUES (hex(zeroblob(100000)), 1)"


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("verdict", "pragma", "sentence"),
    [
        (
            PermanentError,
            "query_only = ON",
            "The database cannot be written: let this user write its file and its folder (",
        ),
        (
            DatabaseFullError,
            "max_page_count = 1",
            "The database cannot grow: make room on its disk (database or disk is full).",
        ),
    ],
)
def test_a_file_that_takes_no_more_is_a_sentence_and_a_full_disk_passes(
    database: Database, verdict: type[AutomationError], pragma: str, sentence: str
) -> None:
    assert statement_fails(database, verdict, INSERT, f"PRAGMA {pragma}").startswith(sentence)


def test_a_damaged_file_is_a_permanent_sentence(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    database = Database(f"sqlite:///{path}")
    database.create_file()
    with database.transaction() as session:
        session.execute(text("CREATE TABLE notes (body TEXT)"))
        session.execute(text("INSERT INTO notes VALUES (hex(zeroblob(100000)))"))
    database.dispose()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    assert statement_fails(database, PermanentError, "SELECT * FROM notes") == (
        "The database's file is damaged: restore it from a backup (database disk image is malformed)."
    )


@pytest.mark.parametrize(
    "statement",
    ["SELECT nonsense FROM rate_limits", "INSERT INTO rate_limits (key, nonsense) VALUES ('k', 1)"],
)
def test_a_column_that_is_missing_says_so_and_what_to_run(
    database: Database, statement: str
) -> None:
    sentence = statement_fails(database, DatabaseNotReadyError, statement)
    assert sentence.startswith("The database is of another version (")
    assert "nonsense" in sentence
    assert sentence.endswith("): run `automation db upgrade`.")


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("code", ["40P01", "40001"])
def test_a_transaction_that_gave_way_is_transient_although_the_database_answers(
    database: Database, code: str
) -> None:
    raising = f"DO $$ BEGIN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '{code}'; END $$"
    sentence = statement_fails(database, TransientError, raising)
    assert sentence == "The database gave way to another transaction: deadlock detected."


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_a_postgres_whose_disk_is_full_says_so_and_is_asked_again_later(database: Database) -> None:
    raising = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
    assert statement_fails(database, DatabaseFullError, raising).startswith(
        "The database cannot grow: make room"
    )


def test_a_bug_in_a_query_stays_a_bug(database: Database) -> None:
    with pytest.raises(DBAPIError), database.reading() as session:
        session.execute(text("SELEKT 1"))


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PermanentError, match=r"x\.db cannot be created: Not a directory\.$"):
        Database(f"sqlite:///{tmp_path}/file/folder/x.db").create_file()


@every_case("url", ["mysql://x", "nonsense", ""])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(PermanentError, match="DATABASE_URL"):
        parse_url(url)


def test_postgresql_means_psycopg_3() -> None:
    assert parse_url("postgresql://u@h/d").drivername == "postgresql+psycopg"
