"""Bring one fiche home, unless the CRM has told of it since a given instant."""

from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.fiches.domain.fiche import (
    DetailsFetched,
    DetailsKnown,
    FetchFailed,
    FicheNotFound,
)
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_details import fetch_details
from automation_pipeline.fiches.store.details import save_outcomes
from automation_pipeline.fiches.store.freshness import known_since
from automation_pipeline.storage.database import Database


async def fetch_fiche(
    fiche_id: str, *, since: datetime, database: Database, source: FicheSource, clock: Clock
) -> DetailsFetched | DetailsKnown | FicheNotFound:
    """TransientError, PermanentError: the CRM gave no answer for it."""
    with database.reading() as session:
        known = known_since(session, [fiche_id], since, clock.now())
    if known:
        return known[0]
    outcome = await fetch_details(fiche_id, source=source, clock=clock)
    await database.write(lambda session: save_outcomes(session, [outcome], clock.now()))
    if isinstance(outcome, FetchFailed):
        raise (TransientError if outcome.transient else PermanentError)(outcome.error)
    return outcome
