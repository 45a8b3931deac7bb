"""Bring the full details of one batch's fiches home and decide which go on; rows move while the batch runs."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
from automation_pipeline.automation.store.phases import seconds_since
from automation_pipeline.automation.store.runs import (
    Tries,
    enter_phase,
    get_run,
    hold_attempt,
    tries_of,
    write_log,
)
from automation_pipeline.core.clock import Clock
from automation_pipeline.fiches.domain.fiche import DetailsFetched, DetailsKnown, FetchFailed, FetchOutcome
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_fiches import fetch_fiches
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.workflow_logs import write_notes

TELL_EVERY = timedelta(seconds=2)
MOST_KEYS = 5


@dataclass(frozen=True)
class FetchKnobs:
    """How long a run may fetch details, over all batches and attempts; how many recordings are too many where the
    schedule does not say (0: none are); how often the run's log has a line about progress."""

    budget_seconds: float
    most_recordings: int
    poll_seconds: float = 20.0


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
        self._causes: dict[str, str] = {}
        self._retried: list[tuple[str, int]] = []
        self._told_at: datetime | None = None
        self._logged_at: datetime | None = None

    async def run(self) -> Counter[str]:
        with self._database.transaction() as session:
            enter_phase(session, self._ticket, Phase.FETCHING)
            tries = tries_of(session, self._ticket.run_id)
            left = pending_fiches(session, self._ticket.run_id, self._number, FicheStage.SELECTED)
            spent = seconds_since(session, self._ticket.run_id, Phase.FETCHING)
            if left:
                self._log_fan_out(session, left)
        try:
            async with asyncio.timeout(max(self._knobs.budget_seconds - spent, 0.0)):
                await self._fetch(left, tries)
        except TimeoutError:
            self._give_up()
        return self._ended

    async def _fetch(self, left: Sequence[str], tries: Tries) -> None:
        def settle(session: Session, outcomes: Sequence[FetchOutcome]) -> None:
            self._settle(session, outcomes, tries.selection)

        def on_retry(outcome: FetchFailed, retry: int) -> None:
            self._causes[outcome.fiche_id] = outcome.error
            self._retried.append((outcome.fiche_id, retry))

        await fetch_fiches(
            left,
            since=tries.since,
            settle=settle,
            database=self._database,
            source=self._source,
            clock=self._clock,
            retries=tries.retries,
            on_retry=on_retry,
        )

    def _settle(self, session: Session, outcomes: Sequence[FetchOutcome], selection: FicheSelection) -> None:
        hold_attempt(session, self._ticket)
        self._log_retries(session)
        if not outcomes:
            return
        known = groupes_of(session, [each.fiche_id for each in outcomes if isinstance(each, DetailsKnown)])
        why = why_without_details(session, [each.fiche_id for each in outcomes if isinstance(each, FetchFailed)])
        moves = [self._move(outcome, selection, known.get(outcome.fiche_id), why) for outcome in outcomes]
        now = self._clock.now()
        record_moves(session, self._ticket.run_id, moves, now)
        if self._told_at is None or now - self._told_at >= TELL_EVERY:
            self._told_at = now
            is_line_due = self._logged_at is None or now - self._logged_at >= timedelta(
                seconds=self._knobs.poll_seconds
            )
            self._logged_at = now if is_line_due else self._logged_at
            tell_progress(session, self._ticket, now, in_log=is_line_due)
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
        """The time is over: what has not come by now is not waited for. What went wrong before is kept as the cause."""
        with self._database.transaction() as session:
            hold_attempt(session, self._ticket)
            left = pending_fiches(session, self._ticket.run_id, self._number, FicheStage.SELECTED)
            why = why_without_details(session, left)
            words = {each: f"{why[each]}: {self._causes[each]}" if each in self._causes else why[each] for each in left}
            moves = [failed(fiche_id, Reason.FETCH_INCOMPLETE, words[fiche_id]) for fiche_id in left]
            record_moves(session, self._ticket.run_id, moves, self._clock.now())
            self._ended.update(move.status for move in moves)

    def _log_fan_out(self, session: Session, left: Sequence[str]) -> None:
        details = {"count": len(left), "retry": 0, "keys": self._keys((fiche_id, 0) for fiche_id in left[:MOST_KEYS])}
        write_log(
            session, self._ticket.run_id, self._clock.now(), "info", "Dispatched fiche/fetch fan-out events", details
        )
        run = get_run(session, self._ticket.run_id)
        waiting = run_note(run, "WAITING: fiche-details gate (polling DB for full details)")
        write_notes(session, run_note(run, f"FAN-OUT: fiche/fetch x{len(left)}"), waiting)

    def _log_retries(self, session: Session) -> None:
        """One line for all that were put back into the queue since the last one."""
        retried, self._retried = self._retried, []
        if retried:
            words = "Fiche details stalled; retrying incomplete fetches"
            retry = max(number for _, number in retried)
            details = {"count": len(retried), "retry": retry, "keys": self._keys(retried[:MOST_KEYS])}
            write_log(session, self._ticket.run_id, self._clock.now(), "warning", words, details)

    def _keys(self, attempts: Iterable[tuple[str, int]]) -> list[str]:
        run_id = self._ticket.run_id
        return [f"automation-{run_id}-fetch-{fiche_id}{retry_suffix(retry)}" for fiche_id, retry in attempts]
