"""One fiche with its details: as mirrored while they are fresh, else as the CRM tells them now."""

import asyncio

from automation_pipeline.core.access import Reach
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError, NotFoundError
from automation_pipeline.fiches.domain.fiche import FicheNotFound
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_fiche import fetch_fiche
from automation_pipeline.fiches.store.details import DETAILS_LIVE_FOR
from automation_pipeline.fiches.store.reading import fiche_document
from automation_pipeline.fiches.store.visibility import check_visible
from automation_pipeline.storage.database import Database


async def read_fiche(
    fiche_id: str, reach: Reach, *, refresh: bool, database: Database, source: FicheSource, clock: Clock
) -> dict[str, object]:
    """When the CRM fails, or no longer knows the fiche, the details that there are. NotFoundError: there are none, or
    by what the CRM has told just now it is out of reach. TransientError, PermanentError: the CRM gave no answer, and
    there are none."""
    now = clock.now()
    since = now if refresh else now - DETAILS_LIVE_FOR
    failure: AutomationError = NotFoundError(f"Fiche {fiche_id} not found")
    try:
        outcome = await fetch_fiche(fiche_id, since=since, database=database, source=source, clock=clock)
        known = not isinstance(outcome, FicheNotFound)
    except AutomationError as error:
        failure, known = error, False
    document = await asyncio.to_thread(_stored, fiche_id, reach, database)
    if document is None or not (known or document["details_fetched_at"]):
        raise failure
    return document


def _stored(fiche_id: str, reach: Reach, database: Database) -> dict[str, object] | None:
    with database.reading() as session:
        check_visible(session, reach, [fiche_id])
        try:
            return fiche_document(session, fiche_id)
        except NotFoundError:
            return None
