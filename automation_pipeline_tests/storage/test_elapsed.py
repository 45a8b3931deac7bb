"""How long it took, to the millisecond, the same on both databases."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, literal, select

from automation_pipeline.storage.database import Database
from automation_pipeline.storage.elapsed import elapsed_milliseconds
from automation_pipeline.storage.types import UtcDateTime

AT = datetime(2026, 3, 29, 0, 59, 59, 999_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("length", "milliseconds"),
    [
        (timedelta(0), 0),
        (timedelta(milliseconds=2), 2),
        (timedelta(days=400), 34_560_000_000),
        (-timedelta(hours=1), -3_600_000),
    ],
)
def test_an_interval_is_told_in_milliseconds(database: Database, length: timedelta, milliseconds: int) -> None:
    since, until = (literal(at, UtcDateTime()) for at in (AT, AT + length))
    with database.reading() as session:
        found = session.scalar(select(elapsed_milliseconds(since, until)))
    assert found == pytest.approx(milliseconds, abs=1)


def test_without_an_end_there_is_no_length(database: Database) -> None:
    with database.reading() as session:
        query = select(
            func.coalesce(elapsed_milliseconds(literal(AT, UtcDateTime()), literal(None, UtcDateTime())), -1)
        )
        assert session.scalar(query) == -1
