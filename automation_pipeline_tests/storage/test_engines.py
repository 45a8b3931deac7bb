"""What a server waits for has an end, work may wait, and no error shows what was written."""

from contextlib import ExitStack

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from automation_pipeline.storage.database import (
    Database,
    DatabaseBusyError,
    DatabaseUnreachableError,
    Pace,
)

POSTGRES_ONLY = pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
PAY = text("UPDATE rate_limits SET paid_until = 2")


def test_what_it_waits_for_ends_before_an_answer_must_be_there() -> None:
    for seconds in (0.1, 60.0, 3600.0):
        pace = Pace(threads=3, seconds=seconds)
        assert 0 < pace.lock_seconds < pace.statement_seconds < seconds
        assert pace.lock_seconds + pace.statement_seconds <= seconds + 1e-9
        assert pace.pool()["pool_size"] == 3


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
