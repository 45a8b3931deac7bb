"""Sales days: the CRM's list of the fiches that were sold on a day. Fetch it, search it, check it."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import date, timedelta

from automation_pipeline.core.access import Reach
from automation_pipeline.core.clock import Clock, days_between
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
    """Fetch and store the day's list, under the semaphore that all processes share.

    A list that cannot be parsed changes nothing.
    """
    async with semaphore.acquire():
        sales = await source.sales_list(day)
    return await asyncio.to_thread(_save, sales, database, clock)


def _save(sales: SalesList, database: Database, clock: Clock) -> SalesDay:
    with database.transaction() as session:
        return save_sales_list(session, sales, clock.now())


async def revalidate_days(  # noqa: PLR0913  collaborators and options, by name
    days: Sequence[date],
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    semaphore: Semaphore,
    force: bool = False,
    on_day: Callable[[SalesDay | DayFailed], None] = lambda _day: None,
) -> list[SalesDay | DayFailed]:
    """Return one outcome per day, in the order of the days. `on_day` receives each as it ends.

    Without `force`, a final list is not fetched again: its outcome is the stored one.
    """
    final = {} if force else await asyncio.to_thread(_final_lists, days, database)

    async def revalidate(day: date) -> SalesDay | DayFailed:
        outcome: SalesDay | DayFailed | None = final.get(day)
        if outcome is None:
            try:
                outcome = await revalidate_day(
                    day, database=database, source=source, clock=clock, semaphore=semaphore
                )
            except AutomationError as error:
                outcome = DayFailed(day, str(error))
        on_day(outcome)
        return outcome

    return await asyncio.gather(*map(revalidate, days))


def _final_lists(days: Sequence[date], database: Database) -> dict[date, SalesDay]:
    with database.reading() as session:
        known = [sales_day(session, day) for day in days]
    return {
        sales.day: sales
        for sales in known
        if sales is not None and is_final(sales.day, sales.revalidated_at)
    }


async def search_day(
    day: date, reach: Reach, *, database: Database, source: FicheSource, semaphore: Semaphore
) -> list[SalesListEntry]:
    """Fetch the day's list without storing it, and keep the fiches that are in reach.

    The list has no groupe, so the mirrored details decide which fiches are in reach. Raises
    TransientError or PermanentError if the CRM returns no usable list.
    """
    async with semaphore.acquire():
        sales = await source.sales_list(day)
    visible = await asyncio.to_thread(
        _visible, [fiche.fiche_id for fiche in sales.fiches], reach, database
    )
    return [fiche for fiche in sales.fiches if fiche.fiche_id in visible]


def _visible(fiche_ids: list[str], reach: Reach, database: Database) -> set[str]:
    with database.reading() as session:
        return visible_fiches(session, reach, fiche_ids)


DAYS_CHECKED = 31


def find_stale_days(first: date, *, database: Database, clock: Clock) -> DayFinding:
    """Check the last `DAYS_CHECKED` days before today, but none before `first`."""
    now = clock.now()
    today = wall_time(now, CRM_ZONE).date()
    first = max(first, today - timedelta(days=DAYS_CHECKED))
    days = days_between(first, today - timedelta(days=1))
    with database.reading() as session:
        revalidated = revalidated_since(session, days[0]) if days else {}
    return evaluate_staleness(stale_days(days, revalidated, now), days)


def check_sales_day(day: date, *, database: Database) -> tuple[DayFinding, ...]:
    with database.reading() as session:
        known, earlier = sales_day(session, day), volumes_of(session, same_weekdays_before(day))
    return evaluate_day(known, earlier)
