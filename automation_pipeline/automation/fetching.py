"""Fetching the details of a batch's fiches, and settling the fetch."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from automation_pipeline.automation.events import run_note
from automation_pipeline.automation.models.runs import (
    IGNORED_MESSAGES,
    FicheStage,
    LedgerMove,
    OutcomeStatus,
    Phase,
    Reason,
    RunAttempt,
)
from automation_pipeline.automation.models.schedules import FicheSelection
from automation_pipeline.automation.queries.ledger import (
    groupes_of,
    ignored_by_reason,
    pending_batches,
    pending_fiches,
    record_moves,
    succeed_fetched,
    tally,
    why_without_details,
)
from automation_pipeline.automation.queries.runs import (
    as_run,
    enter_phase,
    fence_attempt,
    has_ended,
    lock_attempt,
    run_plan,
    seconds_since_start,
    write_log,
)
from automation_pipeline.automation.rules.fiches import (
    failed_move,
    move_after_fetch,
    work_key,
)
from automation_pipeline.automation.runs import MAX_KEYS, log_fan_out, record_progress
from automation_pipeline.core.clock import Clock
from automation_pipeline.fiches.mirror import fetch_fiches
from automation_pipeline.fiches.models.fiches import (
    DetailsKnown,
    FetchFailed,
    FetchOutcome,
    FicheSource,
)
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes

PROGRESS_INTERVAL = timedelta(seconds=2)
NO_ANSWER = "The CRM had not answered when the time for details ended."


@dataclass(frozen=True)
class FetchOptions:
    """`budget_seconds` counts from the start of the run, over all batches and attempts.
    `default_max_recordings` applies if the schedule sets no maximum (0: no limit). `poll_seconds` is the
    interval of progress lines in the run's log."""

    budget_seconds: float
    default_max_recordings: int
    poll_seconds: float = 20.0


async def fetch_batch(
    ticket: RunAttempt,
    batch: int,
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    options: FetchOptions,
) -> Counter[str]:
    """The number of fiches per outcome, and of those that continue (`fetched`). Details that this
    run has fetched before are not requested again."""
    with database.transaction() as session:
        enter_phase(session, ticket, Phase.FETCHING)
        plan = run_plan(session, ticket.run_id)
        left = pending_fiches(session, ticket.run_id, batch, FicheStage.SELECTED)
        spent = seconds_since_start(session, ticket.run_id)
        if left:
            log_fan_out(
                session,
                ticket.run_id,
                clock.now(),
                "fiche/fetch",
                [work_key(ticket.run_id, "fetch", fiche_id) for fiche_id in left],
                waits_for="fiche-details gate (polling DB for full details)",
                retry=0,
            )
    work = _FetchWork(ticket, plan.selection, clock, options)
    try:
        async with asyncio.timeout(max(options.budget_seconds - spent, 0.0)):
            await fetch_fiches(
                left,
                since=plan.since,
                settle=work.settle,
                database=database,
                source=source,
                clock=clock,
                retries=plan.retries,
                on_retry=work.note_retry,
            )
    except TimeoutError:
        with database.transaction() as session:
            fence_attempt(session, ticket)
            work.give_up(
                session, pending_fiches(session, ticket.run_id, batch, FicheStage.SELECTED)
            )
    return work.ended


class _FetchWork:
    def __init__(
        self, ticket: RunAttempt, selection: FicheSelection, clock: Clock, options: FetchOptions
    ) -> None:
        self._ticket, self._selection, self._clock = ticket, selection, clock
        self._options = options
        self.ended: Counter[str] = Counter()
        self._causes: dict[str, str] = {}
        self._retried: list[tuple[str, int]] = []
        self._reported_at: datetime | None = None
        self._logged_at: datetime | None = None

    def note_retry(self, outcome: FetchFailed, retry: int) -> None:
        self._causes[outcome.fiche_id] = outcome.error
        self._retried.append((outcome.fiche_id, retry))

    def settle(self, session: Session, outcomes: Sequence[FetchOutcome]) -> None:
        fence_attempt(session, self._ticket)
        self._log_retries(session)
        if not outcomes:
            return
        known = groupes_of(
            session, [each.fiche_id for each in outcomes if isinstance(each, DetailsKnown)]
        )
        why = why_without_details(
            session, [each.fiche_id for each in outcomes if isinstance(each, FetchFailed)]
        )
        moves = [self._move(outcome, known.get(outcome.fiche_id), why) for outcome in outcomes]
        now = self._clock.now()
        record_moves(session, self._ticket.run_id, moves, now)
        self._report(session, now)
        self.ended.update(
            "fetched" if move.status is OutcomeStatus.PENDING else move.status for move in moves
        )

    def _report(self, session: Session, now: datetime) -> None:
        if self._reported_at is not None and now - self._reported_at < PROGRESS_INTERVAL:
            return
        self._reported_at = now
        poll = timedelta(seconds=self._options.poll_seconds)
        is_line_due = self._logged_at is None or now - self._logged_at >= poll
        if is_line_due:
            self._logged_at = now
        record_progress(session, self._ticket, now, in_log=is_line_due)

    def _move(
        self, outcome: FetchOutcome, groupe: str | None, why: Mapping[str, str]
    ) -> LedgerMove:
        if isinstance(outcome, FetchFailed):
            message = f"{why[outcome.fiche_id]}: {outcome.error}"
            return failed_move(outcome.fiche_id, Reason.FETCH_FAILED, message)
        return move_after_fetch(
            outcome, groupe, self._selection, self._options.default_max_recordings
        )

    def give_up(self, session: Session, fiche_ids: Sequence[str]) -> None:
        """Fail the fiches whose details did not arrive in time, with their last error as the
        cause."""
        why = why_without_details(session, fiche_ids)
        moves: list[LedgerMove] = []
        for each in fiche_ids:
            message = f"{why[each]}: {self._causes.get(each, NO_ANSWER)}"
            moves.append(failed_move(each, Reason.FETCH_INCOMPLETE, message))
        record_moves(session, self._ticket.run_id, moves, self._clock.now())
        self.ended.update(move.status for move in moves)

    def _log_retries(self, session: Session) -> None:
        """Write one line for all retries since the last such line."""
        retried, self._retried = self._retried, []
        if not retried:
            return
        run_id = self._ticket.run_id
        details = {
            "count": len(retried),
            "retry": max(number for _, number in retried),
            "keys": [
                work_key(run_id, "fetch", fiche_id, attempt=number)
                for fiche_id, number in retried[:MAX_KEYS]
            ],
        }
        message = "Fiche details stalled; retrying incomplete fetches"
        write_log(session, run_id, self._clock.now(), "warning", message, details)


STOPPED_AFTER_FETCH = (
    "continueOnError=false and details are missing: transcription and audits are skipped"
)


def settle_fetch(ticket: RunAttempt, *, database: Database, clock: Clock) -> list[int]:
    """The numbers of the batches with fiches to transcribe or audit. Empty if the run has ended, or
    if a fetch failed and the schedule stops on errors."""
    now = clock.now()
    with database.transaction() as session:
        if has_ended(session, ticket):
            return []
        row = lock_attempt(session, ticket)
        schedule = run_plan(session, ticket.run_id).schedule
        if row.fetched_at is None:
            row.fetched_at = now
            record_progress(session, ticket, now)
            counts = vars(tally(session, ticket.run_id, row.selected_fiches))
            failed = counts["failed"]
            row.stopped_after_fetch = failed > 0 and not schedule.continue_on_error
            message = "Fiche detail fetch complete (distributed)"
            write_log(session, row.id, now, "info", message, counts)
            for reason, ignored in ignored_by_reason(session, row.id).items():
                message = IGNORED_MESSAGES[reason]
                write_log(session, row.id, now, "info", message, {"count": ignored})
            write_notes(session, run_note(as_run(row), "DONE: fiche-details-gate", data=counts))
            if row.stopped_after_fetch:
                write_log(session, row.id, now, "warning", STOPPED_AFTER_FETCH, {"failed": failed})
        wants_more = schedule.run_transcription or schedule.run_audits
        are_all_done = row.stopped_after_fetch or not wants_more
        succeed_fetched(session, ticket.run_id, now, without_recordings=not are_all_done)
        session.flush()
        return pending_batches(session, ticket.run_id)
