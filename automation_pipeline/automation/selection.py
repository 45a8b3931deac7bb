"""Select fiches: once per run, as its ledger, and as a preview of a schedule."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from automation_pipeline.automation import events
from automation_pipeline.automation.models.runs import Reason, RunAttempt
from automation_pipeline.automation.models.schedules import (
    FicheCandidate,
    SelectionMode,
    split_ids,
)
from automation_pipeline.automation.queries.ledger import (
    fiches_named,
    fiches_of_days,
    groupes_of,
    open_ledger,
    pending_batches,
)
from automation_pipeline.automation.queries.runs import (
    as_run,
    audit_configs_of,
    freeze_options,
    has_ended,
    lock_attempt,
    lock_run,
    selection_of,
    write_log,
)
from automation_pipeline.automation.queries.schedules import get_schedule, schedule_of_run
from automation_pipeline.automation.rules.fiches import (
    NOT_FOUND_REASON,
    SelectionRequest,
    SelectionResult,
    batch_size,
    ignore_reason,
    selection_request,
)
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.coordination import Semaphore
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.events import WorkflowLogEntry
from automation_pipeline.core.json_model import Id, JsonModel
from automation_pipeline.fiches.mirror import revalidate_days
from automation_pipeline.fiches.models.days import DayFailed, SalesDay
from automation_pipeline.fiches.models.fiches import DetailsKnown, FicheSource
from automation_pipeline.fiches.queries.mirror import known_since, revalidated_since
from automation_pipeline.fiches.rules import is_final
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.outbox import enqueue

MOST_DATES_SHOWN = 10
MOST_IDS_SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """`processes` that share the work. A day's sales list younger than `cooldown` is not requested
    again. `recordings_per_minute` is the speech provider's rate limit."""

    processes: int
    cooldown: timedelta
    recordings_per_minute: int | None = None


class _SelectionLog:
    """Log lines of a selection, collected in memory and stored in the transaction that stores the
    selection, so that a retry does not repeat them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: list[tuple[datetime, str, str, dict[str, object]]] = []

    def add(self, message: str, level: str = "info", **details: object) -> None:
        self._lines.append((self._clock.now(), level, message, details))

    def add_day(self, outcome: SalesDay | DayFailed) -> None:
        day = f"{outcome.day:%d/%m/%Y}"
        if isinstance(outcome, DayFailed):
            self.add(f"Failed to revalidate {day}: {outcome.error}", "error")
        else:
            message = f"Revalidated {day} ({outcome.fiches} fiches)"
            self.add(message, missingCle=outcome.missing_cle)

    def add_days(self, request: SelectionRequest, to_request: Sequence[date]) -> None:
        if request.is_manual:
            self.add("Processing manual fiche selection")
        elif not request.days:
            self.add("No dates to query", "warning")
        else:
            shown = [day.isoformat() for day in request.days[:MOST_DATES_SHOWN]]
            self.add(f"Calculated {len(request.days)} dates to query", dates=shown)
        if to_request:
            message = f"Revalidating fiche cache for {len(to_request)} date(s) before automation"
            self.add(message, up_to_date=len(request.days) - len(to_request))

    def add_result(self, found: SelectionResult) -> None:
        kept = found.kept
        dropped = {str(reason): count for reason, count in found.choice.dropped.items() if count}
        if found.request.days:
            self.add(f"Loaded {len(found.candidates)} fiches from DB")
            self.add(f"Final: {len(kept)} fiches to process", dropped=dropped)
        elif found.candidates:
            message = f"Using {len(kept)} manually selected fiches"
            self.add(message, ids=kept[:MOST_IDS_SHOWN], dropped=dropped)
        elif found.request.is_manual:
            self.add("No fiches in manual selection", "warning")

    def write(self, session: Session, row: RunRow) -> None:
        about = ("automation", "automation_run", str(row.id), events.job_id(row.id))
        notes: list[WorkflowLogEntry] = []
        for at, level, message, details in self._lines:
            write_log(session, row.id, at, level, message, details)
            step = ("select_fiches", row.dagster_run_id, details)
            notes.append(WorkflowLogEntry(*about, message, level, *step))
        write_notes(session, *notes)


async def select_fiches(
    ticket: RunAttempt,
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    semaphore: Semaphore,
    options: SelectionOptions,
) -> Sequence[int]:
    """Select the fiches of a run, open its ledger, and return the batches with pending work. A
    later attempt finds the stored selection and adds nothing; a run that has ended has no batches
    left.

    The CRM requests run outside the transaction that stores the selection, so an interrupted
    attempt repeats them. If the CRM does not return a day, the run logs the failure and uses the
    mirrored fiches of that day.
    """
    with database.transaction() as session:
        if has_ended(session, ticket):
            return ()
        row = lock_attempt(session, ticket)
        if row.selected_at is not None:
            return pending_batches(session, row.id)
        # Relative days count back from the due time or the request, so that late starts and later
        # attempts select the same days.
        selection, at = selection_of(session, row), row.due_at or row.started_at
        timezone = schedule_of_run(session, row.schedule_id).timezone
    request, log = selection_request(selection, at, timezone), _SelectionLog(clock)
    days = _days_to_request(request, database, clock.now() - options.cooldown)
    log.add_days(request, days)
    outcomes = await revalidate_days(
        days,
        database=database,
        source=source,
        clock=clock,
        semaphore=semaphore,
        on_day=log.add_day,
    )
    failures = [outcome for outcome in outcomes if isinstance(outcome, DayFailed)]
    with database.transaction() as session:
        # An exclusive lock: two holders of shared locks would deadlock when they write.
        lock_run(session, ticket.run_id)
        row = lock_attempt(session, ticket)
        if row.selected_at is None:
            found = SelectionResult(request, _candidates(session, request), failures)
            log.add_result(found)
            log.write(session, row)
            _store_selection(session, row, found, options, clock.now())
        return pending_batches(session, row.id)


def _days_to_request(
    request: SelectionRequest, database: Database, cooling_since: datetime
) -> tuple[date, ...]:
    if not request.days:
        return ()
    with database.reading() as session:
        revalidated = revalidated_since(session, request.days[0])
    known = {day for day, at in revalidated.items() if at > cooling_since or is_final(day, at)}
    return tuple(day for day in request.days if day not in known)


def _candidates(
    session: Session, request: SelectionRequest, sold: Sequence[str] = ()
) -> list[FicheCandidate]:
    """`sold`: ids of fiches that the CRM lists for the days, mirrored or not."""
    if request.is_manual:
        return fiches_named(session, split_ids(request.selection.fiche_ids))
    mirrored = fiches_of_days(session, request.days)
    known = {candidate.fiche_id for candidate in mirrored}
    missing = [fiche_id for fiche_id in dict.fromkeys(sold) if fiche_id not in known]
    return [*mirrored, *fiches_named(session, missing)] if missing else mirrored


def _store_selection(
    session: Session, row: RunRow, found: SelectionResult, options: SelectionOptions, now: datetime
) -> None:
    is_transcribed = schedule_of_run(session, row.schedule_id).run_transcription
    cap = options.recordings_per_minute if is_transcribed else None
    size = batch_size(len(found.kept), options.processes, cap)
    open_ledger(session, row.id, found.kept, size, now)
    freeze_options(session, row)
    row.selected_at = now
    row.selected_fiches = row.total_fiches = len(found.kept)
    row.selection_summary = found.summary()
    if found.failures:
        row.error_details = {
            **(row.error_details or {}),
            "revalidation_failures": found.failed_days(),
        }
    session.flush()
    enqueue(session, [events.selection(as_run(row), found.request.selection, len(found.kept), now)])


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UnreadDay(JsonModel):
    date: str
    error: str


class AutomationLeftOut(JsonModel):
    """A fiche that a run would not process, with the key of the reason and its text."""

    fiche_id: str
    reason: str
    why: str


class SelectionPreview(JsonModel):
    """`dropped` fiches would not be part of the run. `ignored` fiches would be part of it and end
    as ignored, judging by their stored details. The preview cannot judge fiches without stored
    details."""

    schedule_id: Id
    mode: SelectionMode
    days: tuple[str, ...]
    unread_days: tuple[UnreadDay, ...]
    candidates: int
    selected: int
    counts: Mapping[str, int]
    fiches: tuple[str, ...]
    dropped: tuple[AutomationLeftOut, ...]
    ignored: tuple[AutomationLeftOut, ...]
    audit_configs: tuple[Id, ...]
    empty_reason: str | None

    def without_fiches(self) -> "SelectionPreview":
        return self.model_copy(update={"fiches": (), "dropped": (), "ignored": ()})


async def preview_schedule(
    schedule_id: int,
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    semaphore: Semaphore,
    default_max_recordings: int = 0,
) -> SelectionPreview:
    """Read the sales lists from the CRM. For days that the CRM does not return, use the mirror, as
    a run does."""
    now = clock.now()
    with database.reading() as session:
        schedule = get_schedule(session, schedule_id)
        configs = audit_configs_of(session, schedule)
    request = selection_request(schedule.fiche_selection, now, schedule.timezone)
    sold, failures = await _sales(request.days, source, semaphore)
    with database.reading() as session:
        found = SelectionResult(request, _candidates(session, request, sold), failures)
        ignored = _ignored(session, found, now, default_max_recordings)
    return SelectionPreview(
        schedule_id=schedule.id,
        mode=request.selection.mode,
        days=tuple(day.isoformat() for day in request.days),
        unread_days=tuple(UnreadDay(**failure) for failure in found.failed_days()),
        candidates=len(found.candidates),
        selected=len(found.kept),
        counts={str(reason): count for reason, count in found.choice.dropped.items()},
        fiches=found.kept,
        dropped=tuple(
            AutomationLeftOut(fiche_id=fiche_id, reason=reason, why=reason.words)
            for fiche_id, reason in found.choice.reasons.items()
        ),
        ignored=ignored,
        audit_configs=configs,
        empty_reason=found.empty_reason,
    )


async def _sales(
    days: Sequence[date], source: FicheSource, semaphore: Semaphore
) -> tuple[list[str], list[DayFailed]]:
    """The ids that the CRM lists for the days, in order, and the days that it does not return."""

    async def request(day: date) -> list[str] | DayFailed:
        try:
            async with semaphore.acquire():
                sales = await source.sales_list(day)
        except AutomationError as error:
            return DayFailed(day, str(error))
        return [fiche.fiche_id for fiche in sales.fiches]

    answers = await asyncio.gather(*map(request, days))
    listed = [fiche_id for answer in answers if isinstance(answer, list) for fiche_id in answer]
    return listed, [answer for answer in answers if isinstance(answer, DayFailed)]


def _ignored(
    session: Session, found: SelectionResult, now: datetime, default_max_recordings: int
) -> tuple[AutomationLeftOut, ...]:
    details = known_since(session, found.kept, EPOCH, now)
    groupes = groupes_of(session, [one.fiche_id for one in details])
    ignored: list[AutomationLeftOut] = []
    for one in details:
        reason: tuple[Reason, str] | None = (Reason.NOT_FOUND, NOT_FOUND_REASON)
        if isinstance(one, DetailsKnown):
            reason = ignore_reason(
                groupes.get(one.fiche_id),
                one.recordings,
                found.request.selection,
                default_max_recordings,
            )
        if reason is not None:
            ignored.append(
                AutomationLeftOut(fiche_id=one.fiche_id, reason=reason[0], why=reason[1])
            )
    return tuple(sorted(ignored, key=lambda one: one.fiche_id))
