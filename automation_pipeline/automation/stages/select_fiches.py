"""Decide which fiches the run is about, once, and write them down as the run's ledger with how that came about."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from automation_pipeline.automation.domain import events
from automation_pipeline.automation.domain.batches import batch_size
from automation_pipeline.automation.domain.dates import days_of
from automation_pipeline.automation.domain.filters import Candidate, named_ids
from automation_pipeline.automation.domain.resolution import Resolution, Wish
from automation_pipeline.automation.domain.run import RunTicket
from automation_pipeline.automation.domain.selection import SelectionMode
from automation_pipeline.automation.store.candidates import fiches_named, fiches_of_days
from automation_pipeline.automation.store.ledger import open_ledger, pending_batches
from automation_pipeline.automation.store.runs import (
    as_run,
    freeze_options,
    has_ended,
    held_run,
    lock_run,
    selection_of,
    write_log,
)
from automation_pipeline.automation.store.schedules import schedule_of_run
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.notes import Note
from automation_pipeline.core.semaphore import Semaphore
from automation_pipeline.core.wall_clock import zone
from automation_pipeline.fiches.domain.days import DayFailed, SalesDay, is_final
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.revalidate_days import revalidate_days
from automation_pipeline.fiches.store.sales import revalidated_since
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes

MOST_DATES_SHOWN = 10
MOST_IDS_SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class SelectionKnobs:
    """`processes` that share the work; `cooldown`: a day's sales list that is younger is not asked for again."""

    processes: int
    cooldown: timedelta


@dataclass(frozen=True)
class Selected:
    """Numbers of the batches that have work left, and the sales lists that were taken anew for this."""

    batches: Sequence[int]
    revalidated: Sequence[SalesDay] = ()


class _Journal:
    """What is said while the selection is made: written down together with it, it is never said twice."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: list[tuple[datetime, str, str, dict[str, object]]] = []

    def say(self, message: str, level: str = "info", **details: object) -> None:
        self._lines.append((self._clock.now(), level, message, details))

    def say_of_day(self, outcome: SalesDay | DayFailed) -> None:
        day = f"{outcome.day:%d/%m/%Y}"
        match outcome:
            case DayFailed():
                self.say(f"Failed to revalidate {day}: {outcome.error}", "error")
            case SalesDay():
                self.say(f"Revalidated {day} ({outcome.fiches} fiches)", missingCle=outcome.missing_cle)

    def write(self, session: Session, row: RunRow) -> None:
        about = ("automation", "automation_run", str(row.id), events.job_id(row.id))
        for at, level, message, details in self._lines:
            write_log(session, row.id, at, level, message, details)
        write_notes(
            session,
            *(
                Note(*about, message, level, "select_fiches", row.dagster_run_id, details)
                for _at, level, message, details in self._lines
            ),
        )


async def select_fiches(
    ticket: RunTicket,
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    semaphore: Semaphore,
    knobs: SelectionKnobs,
) -> Selected:
    """Nothing is left in a run that has ended. A later attempt finds the selection made and adds nothing.

    The sales lists are asked for outside the transaction that writes the selection: broken off, they are asked again.
    A day that gives none is told of in the run, which goes on with what is mirrored.
    """
    with database.transaction() as session:
        if has_ended(session, ticket):
            return Selected(())
        row = held_run(session, ticket)
        if row.selected_at is not None:
            return Selected(pending_batches(session, row.id))
        wish = _wish(session, row)
    journal = _Journal(clock)
    days = _days_to_ask(wish, database, clock.now() - knobs.cooldown)
    _announce(wish, days, journal)
    outcomes = await revalidate_days(
        days, database=database, source=source, clock=clock, semaphore=semaphore, on_day=journal.say_of_day
    )
    failures = [outcome for outcome in outcomes if isinstance(outcome, DayFailed)]
    with database.transaction() as session:
        lock_run(session, ticket.run_id)  # not a share of it: of two that hold one, neither could go on to write
        row = held_run(session, ticket)
        if row.selected_at is None:
            found = Resolution(wish, _candidates(session, wish), failures)
            _conclude(found, journal)
            journal.write(session, row)
            _write_down(session, row, found, knobs.processes, clock.now())
        return Selected(pending_batches(session, row.id), [each for each in outcomes if isinstance(each, SalesDay)])


def _wish(session: Session, row: RunRow) -> Wish:
    """Days are counted back from when the run was due, or asked for: late starts and later attempts see the same."""
    selection = selection_of(session, row)
    if selection.mode is SelectionMode.MANUAL:
        return Wish(selection)
    schedule = schedule_of_run(session, row.schedule_id)
    return Wish(selection, days_of(selection, row.due_at or row.started_at, zone(schedule.timezone)))


def _days_to_ask(wish: Wish, database: Database, cooling_since: datetime) -> tuple[date, ...]:
    if not wish.days:
        return ()
    with database.reading() as session:
        asked = revalidated_since(session, wish.days[0])
    known = {day for day, at in asked.items() if at > cooling_since or is_final(day, at)}
    return tuple(day for day in wish.days if day not in known)


def _announce(wish: Wish, to_ask: Sequence[date], journal: _Journal) -> None:
    if wish.is_manual:
        journal.say("Processing manual fiche selection")
        return
    if not wish.days:
        journal.say("No dates to query", "warning")
        return
    shown = [day.isoformat() for day in wish.days[:MOST_DATES_SHOWN]]
    journal.say(f"Calculated {len(wish.days)} dates to query", dates=shown)
    if to_ask:
        up_to_date = len(wish.days) - len(to_ask)
        journal.say(f"Revalidating fiche cache for {len(to_ask)} date(s) before automation", up_to_date=up_to_date)


def _candidates(session: Session, wish: Wish) -> list[Candidate]:
    return fiches_named(session, named_ids(wish.selection)) if wish.is_manual else fiches_of_days(session, wish.days)


def _conclude(found: Resolution, journal: _Journal) -> None:
    kept, dropped = found.kept, {str(reason): count for reason, count in found.choice.dropped.items() if count}
    if found.wish.days:
        journal.say(f"Loaded {len(found.candidates)} fiches from DB")
        journal.say(f"Final: {len(kept)} fiches to process", dropped=dropped)
    elif found.candidates:
        journal.say(f"Using {len(kept)} manually selected fiches", ids=kept[:MOST_IDS_SHOWN], dropped=dropped)
    elif found.wish.is_manual:
        journal.say("No fiches in manual selection", "warning")


def _write_down(session: Session, row: RunRow, found: Resolution, processes: int, now: datetime) -> None:
    open_ledger(session, row.id, found.kept, batch_size(len(found.kept), processes), now)
    freeze_options(session, row)
    row.selected_at = now
    row.selected_fiches = row.total_fiches = len(found.kept)
    row.selection_summary = found.summary()
    if found.failures:
        row.error_details = {**(row.error_details or {}), "revalidation_failures": found.failed_days()}
    session.flush()
    enqueue(session, [events.selection(as_run(row), found.wish.selection, len(found.kept), now)])
