"""Counts that all processes add to."""

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


def test_counts_of_several_processes_add_up(database: Database) -> None:
    for _ in range(2):
        meter = Meter()
        meter.count("a_total", 1.5, provider="crm")
        MetricsFlusher(meter, lambda: database).flush()
    assert stored(database) == [MetricValue("a_total", 'provider="crm"', 3.0)]


def test_nothing_counted_opens_nothing() -> None:
    def never() -> Database:
        raise AssertionError("opened")

    MetricsFlusher(Meter(), never).flush()


def test_what_cannot_be_written_is_kept_and_is_no_error(database: Database) -> None:
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
def test_counts_are_written_during_the_work_and_at_its_end(
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
