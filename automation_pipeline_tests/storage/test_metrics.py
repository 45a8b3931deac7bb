"""Metrics that all processes add to."""

import asyncio

import pytest
from sqlalchemy import text

from automation_pipeline.core.metrics import Meter
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import MetricsFlusher, MetricValue, all_metrics
from automation_pipeline_tests.waiting import wait_until


def stored(database: Database) -> list[MetricValue]:
    with database.reading() as session:
        return all_metrics(session)


def test_counts_from_several_meters_are_added(database: Database) -> None:
    for _ in range(2):
        meter = Meter()
        meter.count("a_total", 1.5, provider="crm")
        MetricsFlusher(meter, lambda: database).flush()
    assert stored(database) == [MetricValue("a_total", 'provider="crm"', 3.0)]


def test_flushing_without_counts_does_not_open_the_database() -> None:
    def never() -> Database:
        raise AssertionError("opened")

    MetricsFlusher(Meter(), never).flush()


def test_counts_that_cannot_be_written_are_kept_without_an_error(database: Database) -> None:
    meter = Meter()
    meter.count("a_total", 2)
    with database.transaction() as session:
        session.execute(text("ALTER TABLE measures RENAME TO gone"))
    MetricsFlusher(meter, lambda: database).flush()
    meter.count("a_total")
    with database.transaction() as session:
        session.execute(text("ALTER TABLE gone RENAME TO measures"))
    MetricsFlusher(meter, lambda: database).flush()
    assert stored(database) == [MetricValue("a_total", "", 3.0)]


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_counts_are_flushed_in_the_background_and_at_exit(
    database: Database,
) -> None:
    meter = Meter()

    async def work() -> None:
        async with MetricsFlusher(meter, lambda: database, every_seconds=0.02).in_background():
            meter.count("early_total")
            await asyncio.to_thread(wait_until, lambda: len(stored(database)) == 1)
            meter.count("late_total")
            raise ValueError("the work's own")

    with pytest.raises(ValueError, match="the work's own"):
        asyncio.run(work())
    assert [each.name for each in stored(database)] == ["early_total", "late_total"]
