"""Transcribe and audit the fiches of a batch: each fiche's audits begin when its own transcripts are there."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial

from automation_pipeline.audits.store.configs import automatic_configs
from automation_pipeline.automation.domain.notes import run_note
from automation_pipeline.automation.domain.outcomes import LedgerMove, failed
from automation_pipeline.automation.domain.run import FicheStage, OutcomeStatus, Phase, Reason, RunTicket
from automation_pipeline.automation.domain.work import NO_CONFIG, after_transcription, audit_key
from automation_pipeline.automation.ports import Workshop
from automation_pipeline.automation.stages.audit_target import audit_target
from automation_pipeline.automation.stages.tell_progress import tell_progress
from automation_pipeline.automation.stages.transcribe_targets import transcribe_targets
from automation_pipeline.automation.store.ledger import pending_fiches, record_moves
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
        configs = _configs(session, tries) if tries.schedule.run_audits else []
        if tries.schedule.run_audits and not configs and targets:
            write_log(session, ticket.run_id, shop.clock.now(), "error", f"{NO_CONFIG}; nothing can be audited")
    return await _Batch(ticket, targets, configs, tries, shop).run()


def _configs(session: Session, tries: Tries) -> list[int]:
    """Those that the schedule names, then the automatic ones, each once."""
    automatic = automatic_configs(session) if tries.schedule.use_automatic_audits else []
    return list(dict.fromkeys([*tries.schedule.specific_audit_configs, *(stored.id for stored in automatic)]))


class _Batch:
    def __init__(
        self, ticket: RunTicket, targets: Sequence[str], configs: Sequence[int], tries: Tries, shop: Workshop
    ) -> None:
        self._ticket, self._targets, self._configs, self._tries, self._shop = ticket, targets, configs, tries, shop
        self._ready: asyncio.Queue[str | None] = asyncio.Queue()
        self._ended: Counter[str] = Counter()
        self._audits_end_at: float | None = None
        self._one_begins = asyncio.Lock()
        self._told_at = 0.0

    async def run(self) -> Counter[str]:
        async with together() as beside:
            fence = beside.create_task(self._watch_fence())
            await self._work()
            fence.cancel()
        return self._ended

    async def _work(self) -> None:
        async with together() as group:
            group.create_task(self._feed())
            for _ in range(self._shop.knobs.audits_at_once):
                group.create_task(self._finish_ready())
        await asyncio.to_thread(self._tell)

    async def _feed(self) -> None:
        """Everybody who can go on is made ready, then the workers are told that nobody else comes."""
        if self._tries.schedule.run_transcription:
            left = await transcribe_targets(
                self._ticket, self._targets, tries=self._tries, shop=self._shop, ready=self._whole
            )
            await self._record([after_transcription(fiche_id, cause) for fiche_id, cause in left.items()])
        else:
            self._whole(self._targets)
        for _ in range(self._shop.knobs.audits_at_once):
            self._ready.put_nowait(None)

    def _whole(self, fiche_ids: Sequence[str]) -> None:
        for fiche_id in fiche_ids:
            self._ready.put_nowait(fiche_id)

    async def _finish_ready(self) -> None:
        while (fiche_id := await self._ready.get()) is not None:
            await self._record([await self._finish(fiche_id)])

    async def _finish(self, fiche_id: str) -> LedgerMove:
        if not self._tries.schedule.run_audits:
            return LedgerMove(fiche_id, OutcomeStatus.SUCCESSFUL, stage=FicheStage.FETCHED)
        if not self._configs:
            return failed(fiche_id, Reason.NO_AUDIT_CONFIG, NO_CONFIG)
        until = await self._deadline()
        return await audit_target(
            self._ticket, fiche_id, self._configs, tries=self._tries, shop=self._shop, until=until
        )

    async def _deadline(self) -> float:
        """Nobody audits before the run is in that phase."""
        async with self._one_begins:
            if self._audits_end_at is None:
                await asyncio.to_thread(self._begin_audits)
                self._audits_end_at = asyncio.get_running_loop().time() + self._shop.knobs.audit_seconds
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
            write_notes(session, run_note(get_run(session, run_id), f"FAN-OUT: audit/run x{configs * fiches}"))

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

    def _tell(self) -> None:
        with self._shop.database.transaction() as session:
            tell_progress(session, self._ticket, self._shop.clock.now())

    async def _watch_fence(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AT_FENCE_SECONDS)
            await asyncio.to_thread(self._check_fence)

    def _check_fence(self) -> None:
        with self._shop.database.transaction() as session:
            hold_attempt(session, self._ticket)
