"""Fetching the details of a batch's fiches, and settling the fetch."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from automation_pipeline.automation.events import run_note
from automation_pipeline.automation.models.runs import (
    FicheStage,
    LedgerMove,
    OutcomeStatus,
    Phase,
    Reason,
    RunAttempt,
)
from automation_pipeline.automation.models.schedules import FicheSelection
from automation_pipeline.automation.queries.ledger import (
    failures,
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
    RunPlan,
    as_run,
    enter_phase,
    fence_attempt,
    get_run,
    has_ended,
    lock_attempt,
    run_plan,
    seconds_since_start,
    write_log,
)
from automation_pipeline.automation.rules.fiches import (
    failed_move,
    ignore_reason,
    ignored_move,
    move_after_fetch,
    retry_suffix,
)
from automation_pipeline.automation.runs import record_progress
from automation_pipeline.core.clock import Clock
from automation_pipeline.fiches.details import fetch_fiches
from automation_pipeline.fiches.models.fiches import (
    DetailsFetched,
    DetailsKnown,
    FetchFailed,
    FetchOutcome,
)
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes

PROGRESS_INTERVAL = timedelta(seconds=2)
MAX_KEYS = 5


@dataclass(frozen=True)
class FetchOptions:
    """`budget_seconds` counts from the start of the run, over all batches and attempts.
    `most_recordings` applies if the schedule sets no maximum (0: no limit). `poll_seconds` is the
    interval of progress lines in the run's log."""

    budget_seconds: float
    most_recordings: int
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
    return await _FetchBatch(ticket, batch, database, source, clock, options).run()


class _FetchBatch:
    def __init__(
        self,
        ticket: RunAttempt,
        number: int,
        database: Database,
        source: FicheSource,
        clock: Clock,
        options: FetchOptions,
    ) -> None:
        self._ticket, self._number, self._options = ticket, number, options
        self._database, self._source, self._clock = database, source, clock
        self._ended: Counter[str] = Counter()
        self._causes: dict[str, str] = {}
        self._retried: list[tuple[str, int]] = []
        self._reported_at: datetime | None = None
        self._logged_at: datetime | None = None

    async def run(self) -> Counter[str]:
        with self._database.transaction() as session:
            enter_phase(session, self._ticket, Phase.FETCHING)
            plan = run_plan(session, self._ticket.run_id)
            left = pending_fiches(session, self._ticket.run_id, self._number, FicheStage.SELECTED)
            spent = seconds_since_start(session, self._ticket.run_id)
            if left:
                self._log_fan_out(session, left)
        try:
            async with asyncio.timeout(max(self._options.budget_seconds - spent, 0.0)):
                await self._fetch(left, plan)
        except TimeoutError:
            self._give_up()
        return self._ended

    async def _fetch(self, left: Sequence[str], plan: RunPlan) -> None:
        def settle(session: Session, outcomes: Sequence[FetchOutcome]) -> None:
            self._settle(session, outcomes, plan.selection)

        def on_retry(outcome: FetchFailed, retry: int) -> None:
            self._causes[outcome.fiche_id] = outcome.error
            self._retried.append((outcome.fiche_id, retry))

        await fetch_fiches(
            left,
            since=plan.since,
            settle=settle,
            database=self._database,
            source=self._source,
            clock=self._clock,
            retries=plan.retries,
            on_retry=on_retry,
        )

    def _settle(
        self, session: Session, outcomes: Sequence[FetchOutcome], selection: FicheSelection
    ) -> None:
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
        moves = [
            self._move(outcome, selection, known.get(outcome.fiche_id), why) for outcome in outcomes
        ]
        now = self._clock.now()
        record_moves(session, self._ticket.run_id, moves, now)
        if self._reported_at is None or now - self._reported_at >= PROGRESS_INTERVAL:
            self._reported_at = now
            is_line_due = self._logged_at is None or now - self._logged_at >= timedelta(
                seconds=self._options.poll_seconds
            )
            self._logged_at = now if is_line_due else self._logged_at
            record_progress(session, self._ticket, now, in_log=is_line_due)
        self._ended.update(
            "fetched" if move.status is OutcomeStatus.PENDING else move.status for move in moves
        )

    def _move(
        self,
        outcome: FetchOutcome,
        selection: FicheSelection,
        groupe: str | None,
        why: Mapping[str, str],
    ) -> LedgerMove:
        if isinstance(outcome, FetchFailed):
            message = f"{why[outcome.fiche_id]}: {outcome.error}"
            return failed_move(outcome.fiche_id, Reason.FETCH_FAILED, message)
        move = move_after_fetch(outcome)
        if move.status is not OutcomeStatus.PENDING:
            return move
        if isinstance(outcome, DetailsFetched):
            groupe = outcome.details.information.groupe
        recordings = move.recordings_count or 0
        unwanted = ignore_reason(groupe, recordings, selection, self._options.most_recordings)
        return move if unwanted is None else ignored_move(move.fiche_id, *unwanted, recordings)

    def _give_up(self) -> None:
        """Fail the fiches whose details did not arrive in time, with their last error as the
        cause."""
        with self._database.transaction() as session:
            fence_attempt(session, self._ticket)
            left = pending_fiches(session, self._ticket.run_id, self._number, FicheStage.SELECTED)
            why = why_without_details(session, left)
            message = {
                each: f"{why[each]}: {self._causes[each]}" if each in self._causes else why[each]
                for each in left
            }
            moves = [
                failed_move(fiche_id, Reason.FETCH_INCOMPLETE, message[fiche_id])
                for fiche_id in left
            ]
            record_moves(session, self._ticket.run_id, moves, self._clock.now())
            self._ended.update(move.status for move in moves)

    def _log_fan_out(self, session: Session, left: Sequence[str]) -> None:
        details = {
            "count": len(left),
            "retry": 0,
            "keys": self._keys((fiche_id, 0) for fiche_id in left[:MAX_KEYS]),
        }
        write_log(
            session,
            self._ticket.run_id,
            self._clock.now(),
            "info",
            "Dispatched fiche/fetch fan-out events",
            details,
        )
        run = get_run(session, self._ticket.run_id)
        waiting = run_note(run, "WAITING: fiche-details gate (polling DB for full details)")
        write_notes(session, run_note(run, f"FAN-OUT: fiche/fetch x{len(left)}"), waiting)

    def _log_retries(self, session: Session) -> None:
        """Write one line for all retries since the last such line."""
        retried, self._retried = self._retried, []
        if retried:
            message = "Fiche details stalled; retrying incomplete fetches"
            retry = max(number for _, number in retried)
            details = {
                "count": len(retried),
                "retry": retry,
                "keys": self._keys(retried[:MAX_KEYS]),
            }
            write_log(session, self._ticket.run_id, self._clock.now(), "warning", message, details)

    def _keys(self, attempts: Iterable[tuple[str, int]]) -> list[str]:
        run_id = self._ticket.run_id
        return [
            f"automation-{run_id}-fetch-{fiche_id}{retry_suffix(retry)}"
            for fiche_id, retry in attempts
        ]


STOPPED_AFTER_FETCH = (
    "continueOnError=false and details are missing: transcription and audits are skipped"
)

IGNORED_MESSAGES = {
    Reason.NOT_FOUND: "Ignoring NOT_FOUND fiches (404)",
    Reason.GROUPE_NOT_SELECTED: "Ignoring fiches outside selected groupes",
    Reason.MISSING_GROUPE: "Ignoring fiches without groupe",
    Reason.TOO_MANY_RECORDINGS: "Ignoring fiches with too many recordings",
    Reason.NO_RECORDINGS: "onlyWithRecordings=true: ignoring fiches without recordings",
}


def settle_fetch(ticket: RunAttempt, *, database: Database, clock: Clock) -> list[int]:
    """The numbers of the batches with fiches to transcribe or audit. Empty if the run has ended, or
    if a fetch failed and the schedule stops on errors."""
    now = clock.now()
    with database.transaction() as session:
        if has_ended(session, ticket):
            return []
        row = lock_attempt(session, ticket)
        schedule = run_plan(session, ticket.run_id).schedule
        failed = failures(session, ticket.run_id)
        if row.fetched_at is None:
            row.fetched_at = now
            row.stopped_after_fetch = failed > 0 and not schedule.continue_on_error
            counts = vars(tally(session, ticket.run_id, row.selected_fiches))
            write_log(
                session, row.id, now, "info", "Fiche detail fetch complete (distributed)", counts
            )
            for reason, ignored in ignored_by_reason(session, row.id).items():
                write_log(
                    session, row.id, now, "info", IGNORED_MESSAGES[reason], {"count": ignored}
                )
            record_progress(session, ticket, now)
            write_notes(session, run_note(as_run(row), "DONE: fiche-details-gate", data=counts))
            if row.stopped_after_fetch:
                write_log(session, row.id, now, "warning", STOPPED_AFTER_FETCH, {"failed": failed})
        wants_more = schedule.run_transcription or schedule.run_audits
        are_all_done = row.stopped_after_fetch or not wants_more
        succeed_fetched(session, ticket.run_id, now, without_recordings=not are_all_done)
        session.flush()
        return pending_batches(session, ticket.run_id)
