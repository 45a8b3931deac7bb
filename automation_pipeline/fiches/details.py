"""Details of a fiche: the CRM's full record of it. Fetch, store, read and check them."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Self

from automation_pipeline.core.access import Reach
from automation_pipeline.core.background import process_concurrently
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import (
    AutomationError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.fiches.models.fiches import (
    DetailsFetched,
    DetailsKnown,
    FetchFailed,
    FetchOutcome,
    FicheNotFound,
)
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.queries.days import fiches_sold_on, sales_day
from automation_pipeline.fiches.queries.details import (
    DETAILS_LIVE_FOR,
    coverage_of,
    known_since,
    save_outcomes,
)
from automation_pipeline.fiches.queries.fiches import check_visible, fiche_document
from automation_pipeline.fiches.rules import evaluate_coverage
from automation_pipeline.storage.database import Database, Session


async def fetch_details(fiche_id: str, *, source: FicheSource, clock: Clock) -> FetchOutcome:
    """Fetch one fiche from the CRM. A failure is a value, not an exception."""
    asked_at = clock.now()
    try:
        return DetailsFetched(fiche_id, await source.details(fiche_id), asked_at)
    except NotFoundError:
        return FicheNotFound(fiche_id)
    except TransientError as error:
        return FetchFailed(fiche_id, str(error), transient=True)
    except PermanentError as error:
        return FetchFailed(fiche_id, str(error), transient=False)


async def fetch_fiche(
    fiche_id: str, *, since: datetime, database: Database, source: FicheSource, clock: Clock
) -> DetailsFetched | DetailsKnown | FicheNotFound:
    """Return the stored details if they are newer than `since`, else fetch and store them.

    Raises TransientError or PermanentError if the CRM returns no usable answer.
    """
    with database.reading() as session:
        known = known_since(session, [fiche_id], since, clock.now())
    if known:
        return known[0]
    outcome = await fetch_details(fiche_id, source=source, clock=clock)
    await database.write(lambda session: save_outcomes(session, [outcome], clock.now()))
    if isinstance(outcome, FetchFailed):
        raise (TransientError if outcome.transient else PermanentError)(outcome.error)
    return outcome


Settle = Callable[[Session, Sequence[FetchOutcome]], None]


class _Queue(deque[tuple[str, int]]):
    """Iterates over fiches and their attempts. Items appended during the iteration come last."""

    def __next__(self) -> tuple[str, int]:
        if not self:
            raise StopIteration
        return self.popleft()

    def __iter__(self) -> Self:
        return self


async def fetch_fiches(  # noqa: PLR0913  collaborators and options, by name
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
    """Fetch the fiches; each ends in one outcome, and a fiche with fresh details is not fetched
    again.

    `settle` runs in the transaction that stores the outcomes. A fiche that fails goes to the end of
    the queue, at most `retries` times, so that it does not delay others. Outcomes are stored
    regularly, so that a killed process loses only the latest ones.
    """
    queue = _Queue()

    def settle_known() -> None:
        with database.transaction() as session:
            settle(session, known)

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
        await asyncio.to_thread(settle_known)
    known_ids = {outcome.fiche_id for outcome in known}
    queue.extend((fiche_id, 0) for fiche_id in fiche_ids if fiche_id not in known_ids)
    await process_concurrently(queue, fetch, save, width=source.at_once)


async def fetch_days(
    days: Sequence[date],
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Counter[str]:
    """Fetch the missing or outdated details of the fiches sold on these days.

    Returns the errors with their counts. `progress` receives the number of ended fiches and the
    total.
    """
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
    await fetch_fiches(
        fiche_ids, since=since, settle=settle, database=database, source=source, clock=clock
    )
    return errors


async def read_fiche(
    fiche_id: str,
    reach: Reach,
    *,
    refresh: bool,
    database: Database,
    source: FicheSource,
    clock: Clock,
) -> dict[str, object]:
    """Return the fiche's document, fetched again if it is outdated or with `refresh`.

    If the CRM fails or no longer knows the fiche, the stored details are returned. Raises
    NotFoundError if there are none or the fiche is out of reach, and TransientError or
    PermanentError if there are none and the CRM returns no usable answer.
    """
    now = clock.now()
    since = now if refresh else now - DETAILS_LIVE_FOR
    failure: AutomationError = NotFoundError(f"Fiche {fiche_id} not found")
    try:
        outcome = await fetch_fiche(
            fiche_id, since=since, database=database, source=source, clock=clock
        )
        known = not isinstance(outcome, FicheNotFound)
    except AutomationError as error:
        failure, known = error, False
    document = await asyncio.to_thread(_stored_document, fiche_id, reach, database)
    if document is None or not (known or document["details_fetched_at"]):
        raise failure
    return document


def _stored_document(fiche_id: str, reach: Reach, database: Database) -> dict[str, object] | None:
    with database.reading() as session:
        check_visible(session, reach, [fiche_id])
        try:
            return fiche_document(session, fiche_id)
        except NotFoundError:
            return None


def check_details_day(day: date, *, database: Database) -> tuple[DayFinding, ...]:
    with database.reading() as session:
        coverage, known = coverage_of(session, day), sales_day(session, day)
    return evaluate_coverage(coverage, asked=known is not None)
