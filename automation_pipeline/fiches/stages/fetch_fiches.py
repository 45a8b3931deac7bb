"""Bring full details home for many fiches, asking the CRM only for what it has not told since a given instant."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.pool import work_through
from automation_pipeline.fiches.domain.fiche import FetchOutcome
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_details import fetch_details
from automation_pipeline.fiches.store.details import save_outcomes
from automation_pipeline.fiches.store.freshness import known_since
from automation_pipeline.storage.database import Database, Session

Settle = Callable[[Session, Sequence[FetchOutcome]], None]


async def fetch_fiches(
    fiche_ids: Sequence[str],
    *,
    since: datetime,
    settle: Settle,
    database: Database,
    source: FicheSource,
    clock: Clock,
) -> None:
    """Every fiche ends in one outcome. `settle` is called in the transaction that stores outcomes.

    Outcomes are stored while the work goes on, so that a kill loses what was gathered in a moment and no more.
    """

    def save(outcomes: Sequence[FetchOutcome]) -> None:
        with database.transaction() as session:
            settle(session, outcomes)
            save_outcomes(session, outcomes, clock.now())

    async def fetch(fiche_id: str) -> FetchOutcome:
        return await fetch_details(fiche_id, source=source, clock=clock)

    with database.reading() as session:
        known = known_since(session, fiche_ids, since, clock.now())
    if known:
        await asyncio.to_thread(_settle_only, known, settle, database)
    told = {outcome.fiche_id for outcome in known}
    await work_through([each for each in fiche_ids if each not in told], fetch, save, width=source.at_once)


def _settle_only(known: Sequence[FetchOutcome], settle: Settle, database: Database) -> None:
    with database.transaction() as session:
        settle(session, known)
