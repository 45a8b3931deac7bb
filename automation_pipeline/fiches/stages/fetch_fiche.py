"""Bring one fiche home, unless the CRM has told of it since a given instant."""

from collections.abc import Sequence
from datetime import datetime

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.fiches.domain.fiche import (
    DetailsFetched,
    DetailsKnown,
    FetchFailed,
    FetchOutcome,
    FicheNotFound,
)
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_fiches import fetch_fiches
from automation_pipeline.storage.database import Database, Session


async def fetch_fiche(
    fiche_id: str, *, since: datetime, database: Database, source: FicheSource, clock: Clock
) -> DetailsFetched | DetailsKnown | FicheNotFound:
    """TransientError, PermanentError: the CRM gave no answer for it."""
    outcomes: list[FetchOutcome] = []

    def settle(_session: Session, told: Sequence[FetchOutcome]) -> None:
        outcomes.extend(told)

    await fetch_fiches([fiche_id], since=since, settle=settle, database=database, source=source, clock=clock)
    outcome = outcomes[-1]
    if isinstance(outcome, FetchFailed):
        raise (TransientError if outcome.transient else PermanentError)(outcome.error)
    return outcome
