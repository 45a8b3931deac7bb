"""The sales of a day as the CRM lists them now, as far as somebody may see them. Nothing is mirrored."""

import asyncio
from datetime import date

from automation_pipeline.core.access import Reach
from automation_pipeline.core.semaphore import Semaphore
from automation_pipeline.fiches.domain.sales import FicheSummary
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.store.visibility import visible_fiches
from automation_pipeline.storage.database import Database


async def search_day(
    day: date, reach: Reach, *, database: Database, source: FicheSource, semaphore: Semaphore
) -> list[FicheSummary]:
    """One call, under the semaphore that all processes share. The list has no groupe: what is in reach is known by the
    details that are mirrored. TransientError, PermanentError: no list that can be used."""
    async with semaphore.acquire():
        sales = await source.sales_list(day)
    seen = await asyncio.to_thread(_seen, [fiche.fiche_id for fiche in sales.fiches], reach, database)
    return [fiche for fiche in sales.fiches if fiche.fiche_id in seen]


def _seen(fiche_ids: list[str], reach: Reach, database: Database) -> set[str]:
    with database.reading() as session:
        return visible_fiches(session, reach, fiche_ids)
