"""A write that is not worth a wait: made when nobody is in the way, given up at once when somebody
is."""

import time

import pytest
from sqlalchemy import text

from automation_pipeline.core.errors import TransientError
from automation_pipeline.storage.database import Database

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


def test_it_is_written_when_nobody_is_in_the_way(paid: Database) -> None:
    pay_unless_busy(paid, 2)
    assert cost(paid) == 2


def test_somebody_in_the_way_is_a_transient_error_at_once_and_patience_comes_back(
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
