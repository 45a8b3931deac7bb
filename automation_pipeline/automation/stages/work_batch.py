"""Transcribe and audit the fiches of a batch: each fiche's audits begin when its own transcripts are there."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from automation_pipeline.automation.domain.notes import run_note
from automation_pipeline.automation.domain.outcomes import LedgerMove, failed
from automation_pipeline.automation.domain.run import FicheStage, OutcomeStatus, Phase, Reason, RunTicket
from automation_pipeline.automation.domain.work import NO_CONFIG, TIMED_OUT, after_transcription, audit_key
from automation_pipeline.automation.ports import STALL_POLLS, Workshop
from automation_pipeline.automation.stages.audit_target import audit_target
from automation_pipeline.automation.stages.tell_progress import audit_progress, tell_progress
from automation_pipeline.automation.stages.transcribe_targets import Exits, Lost, transcribe_targets
from automation_pipeline.automation.store.ledger import pending_fiches, record_moves
from automation_pipeline.automation.store.phases import seconds_since
from automation_pipeline.automation.store.runs import Tries, enter_phase, get_run, hold_attempt, tries_of, write_log
from automation_pipeline.core.tasks import together
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.workflow_logs import write_notes

LOOK_AT_FENCE_SECONDS = 2.0
TELL_EVERY_SECONDS = 2.0


async def work_batch(ticket: RunTicket, batch: int, *, shop: Workshop) -> Counter[str]:
    """How many fiches ended how. A newer attempt, or a cancelled run, stops the work at once."""
    with shop.database.transaction() as session:
        tries = tries_of(session, ticket.run_id)
        targets = pending_fiches(session, ticket.run_id, batch, FicheStage.FETCHED)
        first = Phase.TRANSCRIBING if tries.schedule.run_transcription else Phase.AUDITING
        enter_phase(session, ticket, first)
        spent = seconds_since(session, ticket.run_id, Phase.TRANSCRIBING, Phase.AUDITING)
        if tries.schedule.run_audits and not tries.configs and targets:
            write_log(session, ticket.run_id, shop.clock.now(), "error", f"{NO_CONFIG}; nothing can be audited")
    return await _Batch(ticket, targets, tries, shop).run(spent)


class _Batch:
    def __init__(self, ticket: RunTicket, targets: Sequence[str], tries: Tries, shop: Workshop) -> None:
        self._ticket, self._targets, self._configs, self._tries, self._shop = (
            ticket,
            targets,
            tries.configs,
            tries,
            shop,
        )
        self._ready: asyncio.Queue[str | None] = asyncio.Queue()
        self._ended: Counter[str] = Counter()
        self._work_ends_at = 0.0
        self._audits_end_at: float | None = None
        self._has_timed_out = False
        self._one_begins = asyncio.Lock()
        self._told_at = 0.0

    async def run(self, spent_seconds: float) -> Counter[str]:
        """`spent_seconds`: what earlier batches and attempts have used of the run's time for this work."""
        knobs, now = self._shop.knobs, asyncio.get_running_loop().time()
        self._work_ends_at = now + max(knobs.transcription_seconds + knobs.audit_seconds - spent_seconds, 0.0)
        async with together() as background:
            watchers = [background.create_task(watch) for watch in (self._watch_fence(), self._watch_audits())]
            await self._work()
            for watcher in watchers:
                watcher.cancel()
        return self._ended

    async def _work(self) -> None:
        async with together() as group:
            group.create_task(self._feed())
            for _ in range(self._shop.knobs.audits_at_once):
                group.create_task(self._finish_ready())
        await asyncio.to_thread(self._end_audits)

    async def _feed(self) -> None:
        """Every fiche that can go on is made ready, then each worker gets the sign that no other comes."""
        if self._tries.schedule.run_transcription:
            until = min(asyncio.get_running_loop().time() + self._shop.knobs.transcription_seconds, self._work_ends_at)
            exits = Exits(self._whole, self._lost)
            await transcribe_targets(
                self._ticket, self._targets, tries=self._tries, shop=self._shop, until=until, exits=exits
            )
        else:
            self._whole(self._targets)
        for _ in range(self._shop.knobs.audits_at_once):
            self._ready.put_nowait(None)

    def _whole(self, fiche_ids: Sequence[str]) -> None:
        for fiche_id in fiche_ids:
            self._ready.put_nowait(fiche_id)

    async def _lost(self, lost: Mapping[str, Lost]) -> None:
        moves = [after_transcription(each, why.cause, timed_out=why.timed_out) for each, why in lost.items()]
        await self._record(moves)

    async def _finish_ready(self) -> None:
        while (fiche_id := await self._ready.get()) is not None:
            await self._record([await self._finish(fiche_id)])

    async def _finish(self, fiche_id: str) -> LedgerMove:
        if not self._tries.schedule.run_audits:
            return LedgerMove(fiche_id, OutcomeStatus.SUCCESSFUL, stage=FicheStage.FETCHED)
        if not self._configs:
            return failed(fiche_id, Reason.NO_AUDIT_CONFIG, NO_CONFIG)
        until = await self._deadline()
        move = await audit_target(
            self._ticket, fiche_id, self._configs, tries=self._tries, shop=self._shop, until=until
        )
        self._has_timed_out |= TIMED_OUT in (move.error or "")
        return move

    async def _deadline(self) -> float:
        """When audits are no longer waited for. The run enters the phase before its first audit begins."""
        async with self._one_begins:
            if self._audits_end_at is None:
                await asyncio.to_thread(self._begin_audits)
                now = asyncio.get_running_loop().time()
                self._audits_end_at = min(now + self._shop.knobs.audit_seconds, self._work_ends_at)
            return self._audits_end_at

    def _begin_audits(self) -> None:
        configs, fiches = len(self._configs), len(self._targets)
        words = f"Running {configs} configs × {fiches} fiches = {configs * fiches} total audits"
        run_id, now = self._ticket.run_id, self._shop.clock.now()
        keys = [audit_key(run_id, fiche_id, config, 0) for fiche_id in self._targets[:5] for config in self._configs]
        with self._shop.database.transaction() as session:
            enter_phase(session, self._ticket, Phase.AUDITING)
            write_log(session, run_id, now, "info", words)
            count = {"count": configs * fiches, "keys": keys[:5]}
            write_log(session, run_id, now, "info", "Dispatched audit/run fan-out events", count)
            run = get_run(session, run_id)
            waiting = run_note(run, "WAITING: audit gate (polling DB for audit completion)")
            write_notes(session, run_note(run, f"FAN-OUT: audit/run x{configs * fiches}"), waiting)

    async def _record(self, moves: Sequence[LedgerMove]) -> None:
        await self._shop.database.write(partial(self._write, moves))
        self._ended.update(move.status for move in moves)
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= TELL_EVERY_SECONDS:
            self._told_at = now
            await asyncio.to_thread(self._tell)

    def _write(self, moves: Sequence[LedgerMove], session: Session) -> None:
        hold_attempt(session, self._ticket)
        record_moves(session, self._ticket.run_id, moves, self._shop.clock.now())

    def _tell(self, *, in_log: bool = False) -> None:
        with self._shop.database.transaction() as session:
            tell_progress(session, self._ticket, self._shop.clock.now(), in_log=in_log)

    def _end_audits(self) -> None:
        self._tell(in_log=True)
        if self._audits_end_at is None:
            return
        with self._shop.database.transaction() as session:
            if self._has_timed_out:
                words = f"Audit timeout/stall - finished {audit_progress(session, self._ticket)}"
                write_log(session, self._ticket.run_id, self._shop.clock.now(), "warning", words)
            write_notes(session, run_note(get_run(session, self._ticket.run_id), "DONE: audit-gate"))

    async def _watch_audits(self) -> None:
        """A line per poll while audits are waited for, and a warning whenever three polls in a row see no progress."""
        last, unchanged = "", 0
        while True:
            await asyncio.sleep(self._shop.knobs.audit_poll_seconds)
            if self._audits_end_at is None:
                continue
            counts = await asyncio.to_thread(self._poll_audits)
            unchanged = unchanged + 1 if counts == last else 0
            last = counts
            if unchanged == STALL_POLLS:
                unchanged = 0
                await asyncio.to_thread(self._log_stall, counts)

    def _poll_audits(self) -> str:
        self._tell(in_log=True)
        with self._shop.database.reading() as session:
            return audit_progress(session, self._ticket)

    def _log_stall(self, counts: str) -> None:
        with self._shop.database.transaction() as session:
            details = {"finished": counts}
            run_id, now = self._ticket.run_id, self._shop.clock.now()
            write_log(session, run_id, now, "warning", "Audits stalled; extending wait", details)

    async def _watch_fence(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AT_FENCE_SECONDS)
            await asyncio.to_thread(self._check_fence)

    def _check_fence(self) -> None:
        with self._shop.database.transaction() as session:
            hold_attempt(session, self._ticket)
