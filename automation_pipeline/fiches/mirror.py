"""The mirror of the CRM: fetch, store, search and check sales lists and the details of fiches."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Self

from automation_pipeline.core.access import Reach
from automation_pipeline.core.background import process_concurrently
from automation_pipeline.core.clock import Clock, days_between
from automation_pipeline.core.coordination import Semaphore
from automation_pipeline.core.errors import (
    AutomationError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.scheduling.zones import wall_time
from automation_pipeline.fiches.models.days import CRM_ZONE, DayFailed, DayFinding, SalesDay
from automation_pipeline.fiches.models.fiches import (
    DetailsFetched,
    DetailsKnown,
    FetchFailed,
    FetchOutcome,
    FicheNotFound,
    FicheSource,
    SalesListEntry,
)
from automation_pipeline.fiches.queries.mirror import (
    DETAILS_LIVE_FOR,
    check_visible,
    coverage_of,
    fiches_sold_on,
    known_since,
    revalidated_since,
    sales_day,
    save_outcomes,
    save_sales_list,
    visible_fiches,
    volumes_of,
)
from automation_pipeline.fiches.rules import (
    evaluate_coverage,
    evaluate_day,
    evaluate_staleness,
    is_final,
    same_weekdays_before,
    stale_days,
)
from automation_pipeline.storage.database import Database, Session

DAYS_CHECKED = 31


async def revalidate_day(
    day: date, *, database: Database, source: FicheSource, clock: Clock, semaphore: Semaphore
) -> SalesDay:
    """Fetch and store the list of the day. The semaphore limits the calls of all processes.

    A list that cannot be parsed changes nothing.
    """
    async with semaphore.acquire():
        sales = await source.sales_list(day)

    def save() -> SalesDay:
        with database.transaction() as session:
            return save_sales_list(session, sales, clock.now())

    return await asyncio.to_thread(save)


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
    """Fetch and store the lists of these days. Return one outcome per day, in the same order.

    `on_day` receives each outcome as soon as it is known. Without `force`, a final list is not fetched
    again: its outcome is the stored list.
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
    known = [database.read(sales_day, day) for day in days]
    return {
        sales.day: sales for sales in known if sales and is_final(sales.day, sales.revalidated_at)
    }


async def search_day(
    day: date, reach: Reach, *, database: Database, source: FicheSource, semaphore: Semaphore
) -> list[SalesListEntry]:
    """Fetch the list of the day without storing it, and return the fiches in reach.

    The list does not contain the groupe, so the stored details decide which fiches are in reach.
    Raises TransientError or PermanentError if the CRM returns no usable list.
    """
    async with semaphore.acquire():
        sales = await source.sales_list(day)
    fiche_ids = [fiche.fiche_id for fiche in sales.fiches]
    visible = await asyncio.to_thread(database.read, visible_fiches, reach, fiche_ids)
    return [fiche for fiche in sales.fiches if fiche.fiche_id in visible]


def find_stale_days(first: date, *, database: Database, clock: Clock) -> DayFinding:
    """Check the last `DAYS_CHECKED` days before today, from `first` on."""
    now = clock.now()
    today = wall_time(now, CRM_ZONE).date()
    first = max(first, today - timedelta(days=DAYS_CHECKED))
    days = days_between(first, today - timedelta(days=1))
    revalidated = database.read(revalidated_since, days[0]) if days else {}
    return evaluate_staleness(stale_days(days, revalidated, now), days)


def check_sales_day(day: date, *, database: Database) -> tuple[DayFinding, ...]:
    with database.reading() as session:
        known, earlier = sales_day(session, day), volumes_of(session, same_weekdays_before(day))
    return evaluate_day(known, earlier)


async def fetch_details(fiche_id: str, *, source: FicheSource, clock: Clock) -> FetchOutcome:
    """Fetch one fiche from the CRM. A failure is a value, not an exception."""
    requested_at = clock.now()
    try:
        return DetailsFetched(fiche_id, await source.details(fiche_id), requested_at)
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
    known = database.read(known_since, [fiche_id], since, clock.now())
    if known:
        return known[0]
    outcome = await fetch_details(fiche_id, source=source, clock=clock)
    await database.write(lambda session: save_outcomes(session, [outcome], clock.now()))
    if isinstance(outcome, FetchFailed):
        raise (TransientError if outcome.transient else PermanentError)(outcome.error)
    return outcome


Settle = Callable[[Session, Sequence[FetchOutcome]], None]


class _Queue(deque[tuple[str, int]]):
    """Iterates over fiche ids with their attempts. Items that are appended during the iteration come last."""

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
    """Fetch the details of the fiches and store one outcome per fiche. Details that are newer than `since`
    are not fetched again.

    `settle` runs in the transaction that stores the outcomes. A fiche that fails goes to the end of
    the queue, at most `retries` times, so that it does not delay the others. Outcomes are stored
    while the calls go on, so that a killed process loses only the latest ones.
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

    known = database.read(known_since, fiche_ids, since, clock.now())
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
    fiche_ids = database.read(fiches_sold_on, days)

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

    If the CRM fails or no longer knows the fiche, this returns the stored details. Raises
    NotFoundError if there are none or the fiche is out of reach. Raises TransientError or
    PermanentError if there are none and the CRM returns no usable answer.
    """
    from automation_pipeline.fiches.queries.fiches import fiche_document  # noqa: PLC0415  runs do not read documents

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

    def stored(session: Session) -> dict[str, object] | None:
        check_visible(session, reach, [fiche_id])
        try:
            return fiche_document(session, fiche_id)
        except NotFoundError:
            return None

    document = await asyncio.to_thread(database.read, stored)
    if document is None or not (known or document["details_fetched_at"]):
        raise failure
    return document


def check_details_day(day: date, *, database: Database) -> tuple[DayFinding, ...]:
    with database.reading() as session:
        coverage, known = coverage_of(session, day), sales_day(session, day)
    return evaluate_coverage(coverage, has_sales_list=known is not None)
