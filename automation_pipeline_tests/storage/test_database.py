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
    ServerLimits,
    parse_url,
)
from automation_pipeline.storage.monitoring import ProcessHeartbeatRow, record_heartbeat
from automation_pipeline_tests.cases import every_case


def test_a_failed_transaction_is_rolled_back(database: Database) -> None:
    def write_and_fail() -> None:
        with database.transaction() as session:
            session.execute(text("INSERT INTO rate_limits (key, paid_until) VALUES ('k', 1)"))
            raise LookupError

    with pytest.raises(LookupError):
        write_and_fail()
    with database.reading() as session:
        assert session.scalar(text("SELECT count(*) FROM rate_limits")) == 0


def test_a_database_without_tables_names_the_upgrade_command(tmp_path: Path) -> None:
    empty = Database(f"sqlite:///{tmp_path}/empty.db")
    empty.create_file()
    with (
        pytest.raises(DatabaseNotReadyError, match="automation db upgrade"),
        empty.reading() as session,
    ):
        session.execute(text("SELECT * FROM leases"))


def test_an_unreachable_postgres_is_an_error_on_one_line() -> None:
    gone = Database("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnreachableError, match="The database does not answer") as caught:
        gone.ping()
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_a_database_is_a_permanent_error(tmp_path: Path) -> None:
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
            "The database cannot grow: free space on its disk (database or disk is full).",
        ),
    ],
)
def test_a_read_only_file_is_permanent_and_a_full_disk_is_transient(
    database: Database, verdict: type[AutomationError], pragma: str, sentence: str
) -> None:
    assert statement_fails(database, verdict, INSERT, f"PRAGMA {pragma}").startswith(sentence)


def test_a_damaged_database_file_is_a_permanent_error(tmp_path: Path) -> None:
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
def test_a_missing_column_is_reported_with_the_upgrade_command(
    database: Database, statement: str
) -> None:
    sentence = statement_fails(database, DatabaseNotReadyError, statement)
    assert sentence.startswith("The database is of another version (")
    assert "nonsense" in sentence
    assert sentence.endswith("): run `automation db upgrade`.")


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
@pytest.mark.parametrize("code", ["40P01", "40001"])
def test_a_deadlock_or_serialization_failure_is_a_transient_error(
    database: Database, code: str
) -> None:
    raising = f"DO $$ BEGIN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '{code}'; END $$"
    sentence = statement_fails(database, TransientError, raising)
    assert sentence == "The database gave way to another transaction: deadlock detected."


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_a_postgres_with_a_full_disk_is_a_database_full_error(database: Database) -> None:
    raising = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
    assert statement_fails(database, DatabaseFullError, raising).startswith(
        "The database cannot grow: free space"
    )


def test_a_syntax_error_is_not_translated(database: Database) -> None:
    with pytest.raises(DBAPIError), database.reading() as session:
        session.execute(text("SELEKT 1"))


def test_a_folder_that_cannot_be_created_is_a_permanent_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PermanentError, match=r"x\.db cannot be created: Not a directory\.$"):
        Database(f"sqlite:///{tmp_path}/file/folder/x.db").create_file()


@every_case("url", ["mysql://x", "nonsense", ""])
def test_unsupported_database_urls_are_refused(url: str) -> None:
    with pytest.raises(PermanentError, match="DATABASE_URL"):
        parse_url(url)


def test_postgresql_urls_use_psycopg_3() -> None:
    assert parse_url("postgresql://u@h/d").drivername == "postgresql+psycopg"


def beats(database: Database) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(ProcessHeartbeatRow)) or 0


def beat(database: Database, name: str) -> None:
    with database.transaction() as session:
        record_heartbeat(session, name)


def beat_and_fail(database: Database) -> None:
    with database.transaction() as session:
        record_heartbeat(session, "in vain")
        raise OnPurposeError


class OnPurposeError(Exception):
    pass


def test_a_single_transaction_commits_all_inner_ones_together(database: Database) -> None:
    with database.single_transaction():
        beat(database, "one")
        assert beats(database) == 1
        beat(database, "two")
        assert beats(database) == 2
    assert beats(database) == 2


def test_a_failure_rolls_back_the_whole_single_transaction(database: Database) -> None:
    def broken() -> None:
        with database.single_transaction():
            beat(database, "one")
            raise OnPurposeError

    with pytest.raises(OnPurposeError):
        broken()
    assert beats(database) == 0


def test_a_handled_failure_in_a_single_transaction_rolls_back_only_itself(
    database: Database,
) -> None:
    with database.single_transaction():
        beat(database, "one")
        with pytest.raises(OnPurposeError):
            beat_and_fail(database)
        beat(database, "three")
    assert beats(database) == 2


def test_transactions_after_a_single_transaction_are_independent(database: Database) -> None:
    with database.single_transaction():
        beat(database, "one")
    with pytest.raises(OnPurposeError):
        beat_and_fail(database)
    assert beats(database) == 1


def test_another_thread_does_not_join_a_single_transaction(database: Database) -> None:
    seen: list[int] = []
    with database.single_transaction():
        beat(database, "one")
        thread = Thread(target=lambda: seen.append(beats(database)))
        thread.start()
        thread.join()
    assert seen == [0]


AT_ONCE_SECONDS = 15  # enough for a slow machine; a blocked writer would wait at least 30 seconds


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


def test_unless_busy_writes_when_no_other_writer_is_active(paid: Database) -> None:
    pay_unless_busy(paid, 2)
    assert cost(paid) == 2


def test_unless_busy_fails_immediately_behind_another_writer_and_restores_the_timeout(
    paid: Database,
) -> None:
    with paid.transaction() as session:
        session.execute(text("UPDATE rate_limits SET paid_until = 3"))
        started_at = time.monotonic()
        with pytest.raises(TransientError):
            pay_unless_busy(paid, 2)
        assert time.monotonic() - started_at < AT_ONCE_SECONDS
    assert cost(paid) == 3
    if paid.dialect == "sqlite":
        with paid.transaction() as session:
            assert session.scalar(text("PRAGMA busy_timeout")) == 30_000
    else:
        with paid.transaction() as session:
            assert session.scalar(text("SHOW lock_timeout")) == "0"


def test_a_failure_in_unless_busy_is_rolled_back(paid: Database) -> None:
    def pay_and_fail() -> None:
        with paid.unless_busy() as session:
            session.execute(text("UPDATE rate_limits SET paid_until = 2"))
            raise LookupError

    with pytest.raises(LookupError):
        pay_and_fail()
    assert cost(paid) == 1


POSTGRES_ONLY = pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
PAY = text("UPDATE rate_limits SET paid_until = 2")


def test_database_timeouts_are_shorter_than_the_request_timeout() -> None:
    short, long = ServerLimits(threads=3, seconds=3.0), ServerLimits(threads=3, seconds=60.0)
    assert (short.lock_seconds, short.statement_seconds) == (1.0, 2.0)
    assert (long.lock_seconds, long.statement_seconds) == (10.0, 40.0)
    for seconds in (0.1, 60.0, 3600.0):
        pace = ServerLimits(threads=3, seconds=seconds)
        assert 0 < pace.lock_seconds < pace.statement_seconds < seconds
        assert pace.lock_seconds + pace.statement_seconds <= seconds + 1e-9


def test_an_exhausted_connection_pool_is_reported_as_unreachable(database: Database) -> None:
    database.serve(ServerLimits(threads=1, seconds=0.3))
    with ExitStack() as held:
        for _ in range(6):
            held.enter_context(database.reading()).connection()
        with pytest.raises(DatabaseUnreachableError, match="all connections are in use here"):
            database.ping()
    database.ping()


@POSTGRES_ONLY
def test_a_server_limits_lock_and_statement_waits(database: Database) -> None:
    waiting = Database(database.url.render_as_string(hide_password=False))
    waiting.serve(ServerLimits(threads=2, seconds=0.6))
    try:
        with database.transaction() as session:
            session.execute(text("INSERT INTO rate_limits (key, paid_until) VALUES ('k', 1)"))
        with database.transaction() as session:
            session.execute(PAY)
            assert_busy(waiting, "UPDATE rate_limits SET paid_until = 3", "lock timeout")
        assert_busy(waiting, "SELECT pg_sleep(60)", "statement timeout")
        waiting.ping()
    finally:
        waiting.dispose()


@POSTGRES_ONLY
def test_workers_have_no_lock_or_statement_timeout(database: Database) -> None:
    with database.reading() as session:
        assert (
            session.scalar(text("SHOW lock_timeout"))
            == session.scalar(text("SHOW statement_timeout"))
            == "0"
        )


def test_database_errors_hide_sql_parameters(database: Database) -> None:
    row = text("INSERT INTO rate_limits (key, paid_until) VALUES (:key, NULL)")
    with pytest.raises(IntegrityError) as caught, database.transaction() as session:
        session.execute(row, {"key": "hush-hush"})
    assert "hush-hush" not in str(caught.value).partition("DETAIL")[0]
    assert "[SQL parameters hidden" in str(caught.value)


def assert_busy(database: Database, statement: str, why: str) -> None:
    with (
        pytest.raises(DatabaseBusyError, match=f"^The database was too busy: .*{why}"),
        database.transaction() as session,
    ):
        session.execute(text(statement))
