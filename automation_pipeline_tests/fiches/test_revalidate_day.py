"""One day's sales list: asked for in a place that all processes share."""

import asyncio
from datetime import date

from automation_pipeline.core.coordination import Semaphore
from automation_pipeline.fiches.days import revalidate_day
from automation_pipeline.fiches.models.fiches import SalesList
from automation_pipeline.storage.claims import DatabaseClaims, DatabasePermits
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource

DAY = date(2026, 2, 3)


def test_the_crm_is_asked_from_a_place_only_and_the_place_is_given_back(
    database: Database, clock: StandingClock
) -> None:
    leases = DatabaseClaims(database)
    held: list[bool] = []

    class Watched(FakeFicheSource):
        async def sales_list(self, day: date) -> SalesList:
            held.append(leases.holder("crm:0") is not None)
            return await super().sales_list(day)

    semaphore = Semaphore(DatabasePermits(database), "crm", 1, "me")
    asyncio.run(
        revalidate_day(DAY, database=database, source=Watched(), clock=clock, semaphore=semaphore)
    )
    assert held == [True]
    assert leases.holder("crm:0") is None
