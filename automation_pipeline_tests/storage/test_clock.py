"""The clock of the database."""

import time
from datetime import UTC, datetime, timedelta, timezone
from itertools import product

import pytest
from sqlalchemy import select
from sqlalchemy.exc import StatementError

from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.rate_limits import RateLimitRow
from automation_pipeline.storage.statements import database_epoch, database_now
from automation_pipeline_tests.cases import every_case

A_TICK = timedelta(milliseconds=5)  # SQLite's clock counts in milliseconds
PARIS_IN_SUMMER = timezone(timedelta(hours=2))


def asked(database: Database, seconds: float = 0.0) -> datetime:
    with database.reading() as session:
        now = session.scalar(select(database_now(seconds)))
    assert now is not None
    return now


def keep(database: Database, expires_at: datetime) -> None:
    with database.transaction() as session:
        row = LeaseRow(
            key="k", owner="anna", token=1, acquired_at=expires_at, expires_at=expires_at
        )
        session.merge(row)


def is_past(database: Database, seconds: float = 0.0) -> bool:
    with database.reading() as session:
        return (
            session.scalar(select(LeaseRow.key).where(LeaseRow.expires_at <= database_now(seconds)))
            == "k"
        )


@every_case("seconds", [0.0, 30, 0.25, -60.0, 86_400.5, -0.001])
def test_database_now_adds_the_given_seconds(database: Database, seconds: float) -> None:
    before = datetime.now(UTC)
    now = asked(database, seconds)
    assert now.utcoffset() == timedelta(0)
    assert before - A_TICK <= now - timedelta(seconds=seconds) <= datetime.now(UTC) + A_TICK


def test_database_now_accepts_a_column_of_seconds(database: Database) -> None:
    before = datetime.now(UTC)
    with database.transaction() as session:
        session.add(RateLimitRow(key="k", paid_until=90.0))
        session.flush()
        later = session.scalar(select(database_now(RateLimitRow.paid_until)))
    assert later is not None
    assert before - A_TICK <= later - timedelta(seconds=90) <= datetime.now(UTC) + A_TICK


def test_the_databases_epoch_is_unix_time(database: Database) -> None:
    before = time.time()
    with database.reading() as session:
        epoch = session.scalar(select(database_epoch())) or 0.0
    assert before - A_TICK.total_seconds() <= epoch <= time.time() + A_TICK.total_seconds()


def test_the_epoch_is_never_before_now_in_the_same_statement(database: Database) -> None:
    with database.reading() as session:
        both = [session.execute(select(database_now(), database_epoch())).one() for _ in range(500)]
    assert [now for now, epoch in both if datetime.fromtimestamp(epoch, UTC) < now] == []


def test_the_clock_moves_within_a_transaction(database: Database) -> None:
    with database.reading() as session:
        first = session.scalar(select(database_epoch())) or 0.0
        assert any((session.scalar(select(database_epoch())) or 0.0) > first for _ in range(10_000))


@every_case("zone", [UTC, PARIS_IN_SUMMER, timezone(timedelta(hours=-11))])
def test_a_stored_instant_compares_with_the_databases_now(
    database: Database, zone: timezone
) -> None:
    for seconds, microsecond in product((-20, 20), (0, 1, 999_999)):
        at = datetime.now(zone).replace(microsecond=microsecond) + timedelta(seconds=seconds)
        keep(database, at)
        assert is_past(database) == (seconds < 0), at
        assert is_past(database, 60.0)
        assert not is_past(database, -60.0)


def test_a_stored_instant_is_read_back_in_utc(database: Database) -> None:
    at = datetime(2026, 7, 1, 0, 30, 0, 1, tzinfo=PARIS_IN_SUMMER)
    keep(database, at)
    with database.reading() as session:
        stored = session.scalar(select(LeaseRow.expires_at))
    assert stored == at
    assert stored is not None
    assert stored.tzinfo is UTC


def test_a_time_without_a_zone_is_refused(database: Database) -> None:
    with pytest.raises(StatementError, match="needs a time zone"):
        keep(database, datetime(2026, 7, 1, 0, 30))  # noqa: DTZ001  the value under test
