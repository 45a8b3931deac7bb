"""Sales lists of days: revalidate, search, check."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import date, timedelta

from automation_pipeline.core.access import Reach
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.coordination import Semaphore
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.scheduling.zones import wall_time
from automation_pipeline.fiches.models.days import CRM_ZONE, DayFailed, DayFinding, SalesDay
from automation_pipeline.fiches.models.fiches import SalesList, SalesListEntry
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.queries.days import (
    revalidated_since,
    sales_day,
    save_sales_list,
    volumes_of,
)
from automation_pipeline.fiches.queries.fiches import visible_fiches
from automation_pipeline.fiches.rules import (
    evaluate_day,
    evaluate_staleness,
    is_final,
    same_weekdays_before,
    stale_days,
)
from automation_pipeline.storage.database import Database


async def revalidate_day(
    day: date, *, database: Database, source: FicheSource, clock: Clock, semaphore: Semaphore
) -> SalesDay:
    """One call, under the semaphore that all processes share. A list that cannot be understood
    changes nothing."""
    async with semaphore.acquire():
        sales = await source.sales_list(day)
    return await asyncio.to_thread(_save, sales, database, clock)


def _save(sales: SalesList, database: Database, clock: Clock) -> SalesDay:
    with database.transaction() as session:
        return save_sales_list(session, sales, clock.now())


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

    A list that is final is not asked for again unless by `force`: its outcome is what was stored
    when it was taken.
    """

    final = {} if force else await asyncio.to_thread(_final_lists, days, database)

    async def ask(day: date) -> SalesDay | DayFailed:
        try:
            return await revalidate_day(
                day, database=database, source=source, clock=clock, semaphore=semaphore
            )
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
    return {
        each.day: each
        for each in known
        if each is not None and is_final(each.day, each.revalidated_at)
    }


async def search_day(
    day: date, reach: Reach, *, database: Database, source: FicheSource, semaphore: Semaphore
) -> list[SalesListEntry]:
    """One call, under the semaphore that all processes share. The list has no groupe: what is in
    reach is known by the details that are mirrored. TransientError, PermanentError: no list that
    can be used."""
    async with semaphore.acquire():
        sales = await source.sales_list(day)
    seen = await asyncio.to_thread(
        _visible, [fiche.fiche_id for fiche in sales.fiches], reach, database
    )
    return [fiche for fiche in sales.fiches if fiche.fiche_id in seen]


def _visible(fiche_ids: list[str], reach: Reach, database: Database) -> set[str]:
    with database.reading() as session:
        return visible_fiches(session, reach, fiche_ids)


DAYS_CHECKED = 31


def find_stale_days(first: date, *, database: Database, clock: Clock) -> DayFinding:
    """The days before today, a month of them, none before `first`."""
    now = clock.now()
    today = wall_time(now, CRM_ZONE).date()
    days = [today - timedelta(days=back) for back in range(DAYS_CHECKED, 0, -1)]
    days = [day for day in days if day >= first]
    with database.reading() as session:
        asked = revalidated_since(session, days[0]) if days else {}
    return evaluate_staleness(stale_days(days, asked, now), days)


def check_sales_day(day: date, *, database: Database) -> tuple[DayFinding, ...]:
    with database.reading() as session:
        known, earlier = sales_day(session, day), volumes_of(session, same_weekdays_before(day))
    return evaluate_day(known, earlier)
