"""Bring the full details of one batch's fiches home and decide which go on; rows move while the batch runs."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from automation_pipeline.automation.domain.filters import authoritative
from automation_pipeline.automation.domain.notes import run_note
from automation_pipeline.automation.domain.outcomes import LedgerMove, after_fetch, failed, ignored
from automation_pipeline.automation.domain.run import FicheStage, OutcomeStatus, Phase, Reason, RunTicket
from automation_pipeline.automation.domain.selection import FicheSelection
from automation_pipeline.automation.domain.work import retry_suffix
from automation_pipeline.automation.stages.tell_progress import tell_progress
from automation_pipeline.automation.store.details import groupes_of, why_without_details
from automation_pipeline.automation.store.ledger import pending_fiches, record_moves
from automation_pipeline.automation.store.runs import enter_phase, get_run, hold_attempt, tries_of, write_log
from automation_pipeline.core.clock import Clock
from automation_pipeline.fiches.domain.fiche import DetailsFetched, DetailsKnown, FetchFailed, FetchOutcome
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_fiches import fetch_fiches
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.workflow_logs import write_notes

TELL_EVERY = timedelta(seconds=2)


@dataclass(frozen=True)
class FetchKnobs:
    """How long a batch may take, and how many recordings are too many where the schedule does not say (0: none are)."""

    budget_seconds: float
    most_recordings: int


async def fetch_batch(
    ticket: RunTicket, batch: int, *, database: Database, source: FicheSource, clock: Clock, knobs: FetchKnobs
) -> Counter[str]:
    """How many fiches ended how, or go on (`fetched`). What was fetched in this run before is not asked for again."""
    return await _Batch(ticket, batch, database, source, clock, knobs).run()


class _Batch:
    def __init__(
        self,
        ticket: RunTicket,
        number: int,
        database: Database,
        source: FicheSource,
        clock: Clock,
        knobs: FetchKnobs,
    ) -> None:
        self._ticket, self._number, self._knobs = ticket, number, knobs
        self._database, self._source, self._clock = database, source, clock
        self._ended: Counter[str] = Counter()
        self._told_at: datetime | None = None

    async def run(self) -> Counter[str]:
        with self._database.transaction() as session:
            enter_phase(session, self._ticket, Phase.FETCHING)
            tries = tries_of(session, self._ticket.run_id)
        try:
            async with asyncio.timeout(self._knobs.budget_seconds):
                for attempt in range(1 + tries.retries):
                    await self._attempt(tries.selection, tries.since, attempt, is_last=attempt == tries.retries)
        except TimeoutError:
            self._give_up()
        return self._ended

    async def _attempt(self, selection: FicheSelection, since: datetime, attempt: int, *, is_last: bool) -> None:
        left = self._left()
        if not left:
            return
        self._log_attempt(left, attempt)

        def settle(session: Session, outcomes: Sequence[FetchOutcome]) -> None:
            settled = [each for each in outcomes if is_last or not isinstance(each, FetchFailed)]
            self._settle(session, settled, selection)

        await fetch_fiches(
            left, since=since, settle=settle, database=self._database, source=self._source, clock=self._clock
        )

    def _settle(self, session: Session, outcomes: Sequence[FetchOutcome], selection: FicheSelection) -> None:
        hold_attempt(session, self._ticket)
        known = groupes_of(session, [each.fiche_id for each in outcomes if isinstance(each, DetailsKnown)])
        why = why_without_details(session, [each.fiche_id for each in outcomes if isinstance(each, FetchFailed)])
        moves = [self._move(outcome, selection, known.get(outcome.fiche_id), why) for outcome in outcomes]
        now = self._clock.now()
        record_moves(session, self._ticket.run_id, moves, now)
        if self._told_at is None or now - self._told_at >= TELL_EVERY:
            self._told_at = now
            tell_progress(session, self._ticket, now)
        self._ended.update("fetched" if move.status is OutcomeStatus.PENDING else move.status for move in moves)

    def _move(
        self, outcome: FetchOutcome, selection: FicheSelection, groupe: str | None, why: Mapping[str, str]
    ) -> LedgerMove:
        if isinstance(outcome, FetchFailed):
            words = f"{why[outcome.fiche_id]}: {outcome.error}"
            return failed(outcome.fiche_id, Reason.FETCH_FAILED, words)
        move = after_fetch(outcome)
        if move.status is not OutcomeStatus.PENDING:
            return move
        if isinstance(outcome, DetailsFetched):
            groupe = outcome.details.information.groupe
        recordings = move.recordings_count or 0
        unwanted = authoritative(groupe, recordings, selection, self._knobs.most_recordings)
        return move if unwanted is None else ignored(move.fiche_id, *unwanted, recordings)

    def _give_up(self) -> None:
        """The time is over: what has not come by now is not waited for."""
        with self._database.transaction() as session:
            hold_attempt(session, self._ticket)
            left = pending_fiches(session, self._ticket.run_id, self._number, FicheStage.SELECTED)
            why = why_without_details(session, left)
            moves = [failed(fiche_id, Reason.FETCH_INCOMPLETE, why[fiche_id]) for fiche_id in left]
            record_moves(session, self._ticket.run_id, moves, self._clock.now())
            self._ended.update(move.status for move in moves)

    def _left(self) -> list[str]:
        with self._database.reading() as session:
            return pending_fiches(session, self._ticket.run_id, self._number, FicheStage.SELECTED)

    def _log_attempt(self, left: Sequence[str], attempt: int) -> None:
        run_id = self._ticket.run_id
        keys = [f"automation-{run_id}-fetch-{fiche_id}{retry_suffix(attempt)}" for fiche_id in left[:5]]
        again, first = "Fiche details stalled; retrying incomplete fetches", "Dispatched fiche/fetch fan-out events"
        with self._database.transaction() as session:
            details = {"count": len(left), "retry": attempt, "keys": keys}
            level, words = ("warning", again) if attempt else ("info", first)
            write_log(session, run_id, self._clock.now(), level, words, details)
            write_notes(session, run_note(get_run(session, run_id), f"FAN-OUT: fiche/fetch x{len(left)}"))
