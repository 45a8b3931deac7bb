"""Ask the CRM for one day's sales list and mirror it."""

import asyncio
from datetime import date

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.semaphore import Semaphore
from automation_pipeline.fiches.domain.days import SalesDay
from automation_pipeline.fiches.domain.sales import SalesList
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.store.sales import save_sales_list
from automation_pipeline.storage.database import Database


async def revalidate_day(
    day: date, *, database: Database, source: FicheSource, clock: Clock, semaphore: Semaphore
) -> SalesDay:
    """One call, under the semaphore that all processes share. A list that cannot be understood changes nothing."""
    async with semaphore.acquire():
        sales = await source.sales_list(day)
    return await asyncio.to_thread(_save, sales, database, clock)


def _save(sales: SalesList, database: Database, clock: Clock) -> SalesDay:
    with database.transaction() as session:
        return save_sales_list(session, sales, clock.now())
