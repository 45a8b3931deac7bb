"""Ask the CRM for the sales lists of several days, except final ones; a day that fails keeps no other from its own."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import date

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.semaphore import Semaphore
from automation_pipeline.fiches.domain.days import DayFailed, SalesDay, is_final
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.revalidate_day import revalidate_day
from automation_pipeline.fiches.store.sales import sales_day
from automation_pipeline.storage.database import Database


async def revalidate_days(  # noqa: PLR0913  the collaborators by name, and two wishes
    days: Sequence[date],
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    semaphore: Semaphore,
    force: bool = False,
    on_day: Callable[[SalesDay | DayFailed], None] = lambda _day: None,
) -> list[SalesDay | DayFailed]:
    """One outcome a day, in the order of the days. `on_day` hears of each as it ends.

    A list that is final is not asked for again unless by `force`: its outcome is what was stored when it was taken.
    """

    final = {} if force else await asyncio.to_thread(_final_lists, days, database)

    async def ask(day: date) -> SalesDay | DayFailed:
        try:
            return await revalidate_day(day, database=database, source=source, clock=clock, semaphore=semaphore)
        except AutomationError as error:
            return DayFailed(day, str(error))

    async def one(day: date) -> SalesDay | DayFailed:
        outcome = final.get(day) or await ask(day)
        on_day(outcome)
        return outcome

    return await asyncio.gather(*map(one, days))


def _final_lists(days: Sequence[date], database: Database) -> dict[date, SalesDay]:
    with database.reading() as session:
        known = [sales_day(session, day) for day in days]
    return {each.day: each for each in known if each is not None and is_final(each.day, each.revalidated_at)}
