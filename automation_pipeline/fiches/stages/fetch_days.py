"""Bring the details of some days' fiches home, as far as they are not there or too old."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date

from automation_pipeline.core.clock import Clock
from automation_pipeline.fiches.domain.fiche import FetchFailed, FetchOutcome
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_fiches import fetch_fiches
from automation_pipeline.fiches.store.details import DETAILS_LIVE_FOR
from automation_pipeline.fiches.store.sales import fiches_sold_on
from automation_pipeline.storage.database import Database, Session


async def fetch_days(
    days: Sequence[date],
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Counter[str]:
    """Why some fiches could not be fetched, with how many each. `progress` hears of every few fiches that ended."""
    errors: Counter[str] = Counter()
    done = 0
    with database.reading() as session:
        fiche_ids = fiches_sold_on(session, days)

    def settle(_session: Session, outcomes: Sequence[FetchOutcome]) -> None:
        nonlocal done
        done += len(outcomes)
        errors.update(outcome.cause for outcome in outcomes if isinstance(outcome, FetchFailed))
        progress(done, len(fiche_ids))

    since = clock.now() - DETAILS_LIVE_FOR
    await fetch_fiches(fiche_ids, since=since, settle=settle, database=database, source=source, clock=clock)
    return errors
