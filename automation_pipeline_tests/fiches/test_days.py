"""Fetch and store sales lists, one day at a time or several days concurrently."""

import asyncio
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import delete

from automation_pipeline.core.coordination import Semaphore
from automation_pipeline.core.errors import TransientError
from automation_pipeline.fiches.mirror import find_stale_days, revalidate_day, revalidate_days
from automation_pipeline.fiches.models.days import DayFailed, SalesDay
from automation_pipeline.fiches.models.fiches import SalesList
from automation_pipeline.fiches.tables import SalesDayRow
from automation_pipeline.storage.claims import DatabaseClaims, DatabasePermits
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource, summary

DAY = date(2026, 2, 3)


def test_the_crm_is_called_with_a_permit_that_is_released_afterwards(
    database: Database, clock: FakeClock
) -> None:
    leases = DatabaseClaims(database)
    held: list[bool] = []

    class ObservedSource(FakeFicheSource):
        async def sales_list(self, day: date) -> SalesList:
            held.append(leases.holder("crm:0") is not None)
            return await super().sales_list(day)

    semaphore = Semaphore(DatabasePermits(database), "crm", 1, "me")
    asyncio.run(
        revalidate_day(
            DAY, database=database, source=ObservedSource(), clock=clock, semaphore=semaphore
        )
    )
    assert held == [True]
    assert leases.holder("crm:0") is None


DAYS = [date(2026, 2, 2), date(2026, 2, 3), date(2026, 2, 4)]


class SourceWithOneBadDay(FakeFicheSource):
    async def sales_list(self, day: date):  # noqa: ANN201  the fake's own type
        if day == DAYS[1]:
            raise TransientError("The CRM did not answer in time for the sales of 2026-02-03.")
        return await super().sales_list(day)


def test_a_failed_day_is_returned_as_an_outcome(database: Database, clock: FakeClock) -> None:
    received: list[SalesDay | DayFailed] = []
    semaphore = Semaphore(DatabasePermits(database), "crm", 3, "me")
    outcomes = asyncio.run(
        revalidate_days(
            DAYS,
            database=database,
            source=SourceWithOneBadDay(),
            clock=clock,
            semaphore=semaphore,
            on_day=received.append,
        )
    )
    assert [outcome.day for outcome in outcomes] == DAYS
    assert [type(outcome) for outcome in outcomes] == [SalesDay, DayFailed, SalesDay]
    assert len(received) == 3


def revalidate(
    days: list[date],
    source: FakeFicheSource,
    database: Database,
    clock: FakeClock,
    *,
    force: bool = False,
) -> list[SalesDay | DayFailed]:
    semaphore = Semaphore(DatabasePermits(database), "crm", 3, "me")
    received: list[SalesDay | DayFailed] = []
    work = revalidate_days(
        days,
        database=database,
        source=source,
        clock=clock,
        semaphore=semaphore,
        force=force,
        on_day=received.append,
    )
    outcomes = asyncio.run(work)
    assert sorted(received, key=lambda each: each.day) == outcomes
    return outcomes


def test_a_final_list_is_returned_as_stored_and_not_fetched_again(
    database: Database, clock: FakeClock
) -> None:
    source = FakeFicheSource()
    source.set_sales(DAYS[0], summary("1"))
    first = revalidate(DAYS[:2], source, database, clock)
    clock.advance(timedelta(days=1))
    source.set_sales(DAYS[0], summary("1"), summary("2"))
    again = revalidate(DAYS, source, database, clock)
    assert again[:2] == first
    assert sorted(source.requests) == [day.isoformat() for day in DAYS]


def test_the_last_31_days_are_checked_for_stale_lists(database: Database, clock: FakeClock) -> None:
    days = [date(2026, 4, 3) + timedelta(days=number) for number in range(31)]
    counts = {"listed": 0, "duplicates": 0, "new": 0, "changed": 0, "missing_cle": 0}
    with database.transaction() as session:
        session.add_all(
            SalesDayRow(
                day=day.isoformat(), revalidated_at=clock.now(), without_recordings=0, **counts
            )
            for day in days
        )

    def messages(*first: date) -> list[str]:
        return [find_stale_days(day, database=database, clock=clock).message for day in first]

    assert messages(DAYS[0], days[-1], date(2026, 5, 4)) == [
        "The lists of the last 31 days are fresh.",
        "The lists of the last 1 days are fresh.",
        "The lists of the last 0 days are fresh.",
    ]
    with database.transaction() as session:
        session.execute(delete(SalesDayRow).where(SalesDayRow.day == "2026-04-03"))
    assert messages(DAYS[0]) == ["1 of the last 31 days are stale: 2026-04-03"]


def test_a_forced_revalidation_fetches_a_final_list_again(
    database: Database, clock: FakeClock
) -> None:
    source = FakeFicheSource()
    revalidate(DAYS[:1], source, database, clock)
    clock.advance(timedelta(days=1))
    source.set_sales(DAYS[0], summary("1"))
    [again] = revalidate(DAYS[:1], source, database, clock, force=True)
    assert isinstance(again, SalesDay)
    assert (again.fiches, again.revalidated_at) == (1, clock.now())


@pytest.mark.parametrize("passed", [timedelta(minutes=1), timedelta(days=3)])
def test_a_list_fetched_before_the_end_of_its_day_is_always_fetched_again(
    database: Database, passed: timedelta
) -> None:
    # A minute before midnight in Paris.
    source, clock = FakeFicheSource(), FakeClock(datetime(2026, 2, 3, 22, 59, tzinfo=UTC))
    revalidate([DAYS[1]], source, database, clock)
    clock.advance(passed)
    revalidate([DAYS[1]], source, database, clock)
    assert source.requests == [DAYS[1].isoformat()] * 2
