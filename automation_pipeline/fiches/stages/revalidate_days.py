"""Ask the CRM for the sales lists of several days; a day that fails does not keep the others from theirs."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import date

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.slots import Slots
from automation_pipeline.fiches.domain.days import DayFailed, SalesDay
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.revalidate_day import revalidate_day
from automation_pipeline.storage.database import Database


async def revalidate_days(
    days: Sequence[date],
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    slots: Slots,
    on_day: Callable[[SalesDay | DayFailed], None] = lambda _day: None,
) -> list[SalesDay | DayFailed]:
    """One outcome a day, in the order of the days. `on_day` hears of each as it ends."""

    async def one(day: date) -> SalesDay | DayFailed:
        try:
            outcome = await revalidate_day(day, database=database, source=source, clock=clock, slots=slots)
        except AutomationError as error:
            outcome = DayFailed(day, str(error))
        on_day(outcome)
        return outcome

    return await asyncio.gather(*map(one, days))
