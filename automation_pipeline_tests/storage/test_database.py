"""The database: sessions, engines, errors and transactions."""

import time
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.storage.database import (
    Database,
    DatabaseBusyError,
    DatabaseFullError,
    DatabaseNotReadyError,
    DatabaseUnreachableError,
    Pace,
    parse_url,
)
from automation_pipeline.storage.monitoring import ProcessHeartbeatRow, record_heartbeat
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


def beats(database: Database) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(ProcessHeartbeatRow)) or 0


def beat(database: Database, name: str) -> None:
    with database.transaction() as session:
        record_heartbeat(session, name)


def beat_in_vain(database: Database) -> None:
    with database.transaction() as session:
        record_heartbeat(session, "in vain")
        raise OnPurposeError


class OnPurposeError(Exception):
    pass


def test_all_is_kept_together(database: Database) -> None:
    with database.as_one():
        beat(database, "one")
        assert beats(database) == 1
        beat(database, "two")
        assert beats(database) == 2
    assert beats(database) == 2


def test_when_the_whole_fails_nothing_is_kept(database: Database) -> None:
    def broken() -> None:
        with database.as_one():
            beat(database, "one")
            raise OnPurposeError

    with pytest.raises(OnPurposeError):
        broken()
    assert beats(database) == 0


def test_a_part_that_fails_and_is_understood_takes_only_itself_back(database: Database) -> None:
    with database.as_one():
        beat(database, "one")
        with pytest.raises(OnPurposeError):
            beat_in_vain(database)
        beat(database, "three")
    assert beats(database) == 2


def test_afterwards_transactions_are_their_own_again(database: Database) -> None:
    with database.as_one():
        beat(database, "one")
    with pytest.raises(OnPurposeError):
        beat_in_vain(database)
    assert beats(database) == 1


def test_another_thread_is_not_part_of_it(database: Database) -> None:
    seen: list[int] = []
    with database.as_one():
        beat(database, "one")
        thread = Thread(target=lambda: seen.append(beats(database)))
        thread.start()
        thread.join()
    assert seen == [0]


AT_ONCE_SECONDS = 15  # a slow machine's; whoever waited would wait 30 seconds, or for ever


def cost(database: Database) -> object:
    with database.reading() as session:
        return session.scalar(text("SELECT paid_until FROM rate_limits"))


@pytest.fixture
def paid(database: Database) -> Database:
    with database.transaction() as session:
        session.execute(text("INSERT INTO rate_limits (key, paid_until) VALUES ('k', 1)"))
    return database


def pay_unless_busy(database: Database, until: int) -> None:
    with database.unless_busy() as session:
        session.execute(text("UPDATE rate_limits SET paid_until = :until"), {"until": until})


def test_it_is_written_when_no_other_writer_is_active(paid: Database) -> None:
    pay_unless_busy(paid, 2)
    assert cost(paid) == 2


def test_another_writer_is_a_transient_error_at_once_and_the_timeout_is_restored(
    paid: Database,
) -> None:
    with paid.transaction() as session:
        session.execute(text("UPDATE rate_limits SET paid_until = 3"))
        began = time.monotonic()
        with pytest.raises(TransientError):
            pay_unless_busy(paid, 2)
        assert time.monotonic() - began < AT_ONCE_SECONDS
    assert cost(paid) == 3
    if paid.dialect == "sqlite":
        with paid.transaction() as session:
            assert session.scalar(text("PRAGMA busy_timeout")) == 30_000
    else:
        with paid.transaction() as session:
            assert session.scalar(text("SHOW lock_timeout")) == "0"


def test_what_fails_is_undone(paid: Database) -> None:
    def pay_and_fail() -> None:
        with paid.unless_busy() as session:
            session.execute(text("UPDATE rate_limits SET paid_until = 2"))
            raise LookupError

    with pytest.raises(LookupError):
        pay_and_fail()
    assert cost(paid) == 1


POSTGRES_ONLY = pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
PAY = text("UPDATE rate_limits SET paid_until = 2")


def test_what_it_waits_for_ends_before_an_answer_must_be_there() -> None:
    for seconds in (0.1, 60.0, 3600.0):
        pace = Pace(threads=3, seconds=seconds)
        assert 0 < pace.lock_seconds < pace.statement_seconds < seconds
        assert pace.lock_seconds + pace.statement_seconds <= seconds + 1e-9


def test_more_at_once_than_connections_is_one_sentence(database: Database) -> None:
    database.serve(Pace(threads=1, seconds=0.3))
    with ExitStack() as held:
        for _ in range(6):
            held.enter_context(database.reading()).connection()
        with pytest.raises(DatabaseUnreachableError, match="all connections are in use here"):
            database.ping()
    database.ping()


@POSTGRES_ONLY
def test_a_server_waits_for_locks_and_statements_only_so_long(database: Database) -> None:
    waiting = Database(database.url.render_as_string(hide_password=False))
    waiting.serve(Pace(threads=2, seconds=0.6))
    try:
        with database.transaction() as session:
            session.execute(text("INSERT INTO rate_limits (key, paid_until) VALUES ('k', 1)"))
        with database.transaction() as session:
            session.execute(PAY)
            refuses(waiting, "UPDATE rate_limits SET paid_until = 3", "lock timeout")
        refuses(waiting, "SELECT pg_sleep(60)", "statement timeout")
        waiting.ping()
    finally:
        waiting.dispose()


@POSTGRES_ONLY
def test_work_waits_as_long_as_it_must(database: Database) -> None:
    with database.reading() as session:
        assert (
            session.scalar(text("SHOW lock_timeout"))
            == session.scalar(text("SHOW statement_timeout"))
            == "0"
        )


def test_an_error_never_shows_what_was_written(database: Database) -> None:
    row = text("INSERT INTO rate_limits (key, paid_until) VALUES (:key, NULL)")
    with pytest.raises(IntegrityError) as caught, database.transaction() as session:
        session.execute(row, {"key": "hush-hush"})
    assert "hush-hush" not in str(caught.value).partition("DETAIL")[0]
    assert "[SQL parameters hidden" in str(caught.value)


def refuses(database: Database, statement: str, why: str) -> None:
    with (
        pytest.raises(DatabaseBusyError, match=f"^The database was too busy: .*{why}"),
        database.transaction() as session,
    ):
        session.execute(text(statement))
