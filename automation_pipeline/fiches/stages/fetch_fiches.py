"""Bring full details home for many fiches, asking the CRM only for what it has not told since a given instant."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Self

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.pool import work_through
from automation_pipeline.fiches.domain.fiche import FetchFailed, FetchOutcome
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_details import fetch_details
from automation_pipeline.fiches.store.details import save_outcomes
from automation_pipeline.fiches.store.freshness import known_since
from automation_pipeline.storage.database import Database, Session

Settle = Callable[[Session, Sequence[FetchOutcome]], None]


class _Queue(deque[tuple[str, int]]):
    """An iterator over what waits; what is appended while it is consumed is served last."""

    def __next__(self) -> tuple[str, int]:
        if not self:
            raise StopIteration
        return self.popleft()

    def __iter__(self) -> Self:
        return self


async def fetch_fiches(  # noqa: PLR0913  two of them have defaults
    fiche_ids: Sequence[str],
    *,
    since: datetime,
    settle: Settle,
    database: Database,
    source: FicheSource,
    clock: Clock,
    retries: int = 0,
    on_retry: Callable[[FetchFailed, int], None] = lambda _outcome, _retry: None,
) -> None:
    """Every fiche ends in one outcome. `settle` is called in the transaction that stores outcomes.

    A fiche that fails goes to the end of the queue, at most `retries` times, and holds up no other.

    Outcomes are stored while the work goes on, so that a kill loses what was gathered in a moment and no more.
    """

    queue = _Queue()

    def save(results: Sequence[FetchOutcome | None]) -> None:
        outcomes = [outcome for outcome in results if outcome is not None]
        with database.transaction() as session:
            settle(session, outcomes)
            save_outcomes(session, outcomes, clock.now())

    async def fetch(item: tuple[str, int]) -> FetchOutcome | None:
        fiche_id, attempt = item
        outcome = await fetch_details(fiche_id, source=source, clock=clock)
        if not isinstance(outcome, FetchFailed) or attempt == retries:
            return outcome
        queue.append((fiche_id, attempt + 1))
        on_retry(outcome, attempt + 1)
        return None

    with database.reading() as session:
        known = known_since(session, fiche_ids, since, clock.now())
    if known:
        await asyncio.to_thread(_settle_only, known, settle, database)
    told = {outcome.fiche_id for outcome in known}
    queue.extend((each, 0) for each in fiche_ids if each not in told)
    await work_through(queue, fetch, save, width=source.at_once)


def _settle_only(known: Sequence[FetchOutcome], settle: Settle, database: Database) -> None:
    with database.transaction() as session:
        settle(session, known)
