"""Auditing the fiches of a batch, each as soon as its transcripts are there."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from automation_pipeline.audits.models.audits import AuditStatus, AuditSummary, FicheAuditRequest
from automation_pipeline.automation.events import run_note
from automation_pipeline.automation.models.runs import (
    FicheStage,
    LedgerMove,
    OutcomeStatus,
    Phase,
    Reason,
    RunAttempt,
)
from automation_pipeline.automation.ports import STALL_POLLS, BatchContext
from automation_pipeline.automation.queries.fiches import is_audit_stored
from automation_pipeline.automation.queries.ledger import pending_fiches, record_moves
from automation_pipeline.automation.queries.runs import (
    RunPlan,
    enter_phase,
    fence_attempt,
    get_run,
    run_plan,
    seconds_since,
    write_log,
)
from automation_pipeline.automation.rules.outcomes import (
    NO_CONFIG,
    TIMED_OUT,
    ConfigAuditResult,
    audit_key,
    failed_move,
    move_after_audits,
    move_after_transcription,
    retry_suffix,
)
from automation_pipeline.automation.runs import audit_progress, record_progress
from automation_pipeline.automation.transcribing import (
    TranscriptionCallbacks,
    TranscriptionFailure,
    transcribe_targets,
)
from automation_pipeline.core.background import together
from automation_pipeline.core.errors import AutomationError, InfrastructureError
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.workflow_logs import write_notes

# An audit that did not end is asked for once more, also where failures are not retried.
MIN_RETRIES = 1


async def audit_target(
    ticket: RunAttempt,
    fiche_id: str,
    config_ids: Sequence[int],
    *,
    tries: RunPlan,
    shop: BatchContext,
    until: float | None = None,
) -> LedgerMove:
    """Audits are waited for `until`, by the loop's clock; what has ended by then counts. They run
    one at a time, but an audit that stalls does not hold up the next. GroundError is no end of an
    audit."""
    causes: dict[int, str] = {}
    audits: dict[int, asyncio.Task[ConfigAuditResult]] = {}
    try:
        async with asyncio.timeout_at(until), together() as group:
            for config_id in config_ids:
                audits[config_id] = group.create_task(
                    _audit(_first_request(ticket, fiche_id, config_id, tries), tries, shop, causes)
                )
                await asyncio.wait({audits[config_id]}, timeout=shop.knobs.stall_seconds)
    except TimeoutError:
        pass
    ended = {
        each: task.result() for each, task in audits.items() if task.done() and not task.cancelled()
    }
    ends = [
        ended.get(config_id)
        or ConfigAuditResult(config_id, None, causes.get(config_id), timed_out=True)
        for config_id in config_ids
    ]
    return move_after_audits(fiche_id, ends)


def _first_request(
    ticket: RunAttempt, fiche_id: str, config_id: int, tries: RunPlan
) -> FicheAuditRequest:
    return FicheAuditRequest(
        tracking_id=audit_key(ticket.run_id, fiche_id, config_id, 0),
        fiche_id=fiche_id,
        audit_config_id=config_id,
        use_rlm=tries.selection.use_rlm,
        trigger_source="automation",
        schedule_id=tries.schedule.id,
        run_id=ticket.run_id,
    )


async def _audit(
    first: FicheAuditRequest, tries: RunPlan, shop: BatchContext, causes: dict[int, str]
) -> ConfigAuditResult:
    config_id = first.audit_config_id
    end, failures, last = ConfigAuditResult(config_id, None), 0, max(tries.retries, MIN_RETRIES)
    for attempt in range(1 + last):
        wish = replace(first, tracking_id=f"{first.tracking_id}{retry_suffix(failures)}")
        try:
            standing = await _run_audit(wish, shop)
        except AutomationError as error:
            if isinstance(error, InfrastructureError) and attempt == last:
                raise
            end, causes[config_id] = ConfigAuditResult(config_id, None, str(error)), str(error)
            continue
        if standing.status is AuditStatus.COMPLETED:
            return ConfigAuditResult(config_id, completed=True)
        has_failed = standing.status is AuditStatus.FAILED
        end = ConfigAuditResult(
            config_id, completed=False if has_failed else None, error=standing.error
        )
        if standing.error:
            causes[config_id] = standing.error
        if has_failed and attempt >= tries.retries:
            break
        failures += has_failed
    return end


async def _run_audit(wish: FicheAuditRequest, shop: BatchContext) -> AuditSummary:
    """While the audit stalls and nothing of it is stored, it is asked for again under the same
    key."""
    while True:
        call = asyncio.ensure_future(shop.audit(wish))
        try:
            while not (await asyncio.wait({call}, timeout=shop.knobs.stall_seconds))[0]:
                if not await asyncio.to_thread(_is_stored, wish.tracking_id, shop):
                    break
            else:
                return call.result()
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)


def _is_stored(tracking_id: str, shop: BatchContext) -> bool:
    with shop.database.reading() as session:
        return is_audit_stored(session, tracking_id)


FENCE_CHECK_SECONDS = 2.0
PROGRESS_SECONDS = 2.0


async def work_batch(ticket: RunAttempt, batch: int, *, shop: BatchContext) -> Counter[str]:
    """How many fiches ended how. A newer attempt, or a cancelled run, stops the work at once."""
    with shop.database.transaction() as session:
        tries = run_plan(session, ticket.run_id)
        targets = pending_fiches(session, ticket.run_id, batch, FicheStage.FETCHED)
        first = Phase.TRANSCRIBING if tries.schedule.run_transcription else Phase.AUDITING
        enter_phase(session, ticket, first)
        spent = seconds_since(session, ticket.run_id, Phase.TRANSCRIBING, Phase.AUDITING)
        if tries.schedule.run_audits and not tries.configs and targets:
            write_log(
                session,
                ticket.run_id,
                shop.clock.now(),
                "error",
                f"{NO_CONFIG}; nothing can be audited",
            )
    return await _WorkBatch(ticket, targets, tries, shop).run(spent)


class _WorkBatch:
    def __init__(
        self, ticket: RunAttempt, targets: Sequence[str], tries: RunPlan, shop: BatchContext
    ) -> None:
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
        """`spent_seconds`: what earlier batches and attempts have used of the run's time for this
        work."""
        knobs, now = self._shop.knobs, asyncio.get_running_loop().time()
        self._work_ends_at = now + max(
            knobs.transcription_seconds + knobs.audit_seconds - spent_seconds, 0.0
        )
        async with together() as background:
            watchers = [
                background.create_task(watch)
                for watch in (self._watch_fence(), self._watch_audits())
            ]
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
        """Every fiche that can go on is made ready, then each worker gets the sign that no other
        comes."""
        if self._tries.schedule.run_transcription:
            until = min(
                asyncio.get_running_loop().time() + self._shop.knobs.transcription_seconds,
                self._work_ends_at,
            )
            exits = TranscriptionCallbacks(self._whole, self._lost)
            await transcribe_targets(
                self._ticket,
                self._targets,
                tries=self._tries,
                shop=self._shop,
                until=until,
                exits=exits,
            )
        else:
            self._whole(self._targets)
        for _ in range(self._shop.knobs.audits_at_once):
            self._ready.put_nowait(None)

    def _whole(self, fiche_ids: Sequence[str]) -> None:
        for fiche_id in fiche_ids:
            self._ready.put_nowait(fiche_id)

    async def _lost(self, lost: Mapping[str, TranscriptionFailure]) -> None:
        moves = [
            move_after_transcription(each, why.cause, timed_out=why.timed_out)
            for each, why in lost.items()
        ]
        await self._record(moves)

    async def _finish_ready(self) -> None:
        while (fiche_id := await self._ready.get()) is not None:
            await self._record([await self._finish(fiche_id)])

    async def _finish(self, fiche_id: str) -> LedgerMove:
        if not self._tries.schedule.run_audits:
            return LedgerMove(fiche_id, OutcomeStatus.SUCCESSFUL, stage=FicheStage.FETCHED)
        if not self._configs:
            return failed_move(fiche_id, Reason.NO_AUDIT_CONFIG, NO_CONFIG)
        until = await self._deadline()
        move = await audit_target(
            self._ticket, fiche_id, self._configs, tries=self._tries, shop=self._shop, until=until
        )
        self._has_timed_out |= TIMED_OUT in (move.error or "")
        return move

    async def _deadline(self) -> float:
        """When audits are no longer waited for. The run enters the phase before its first audit
        begins."""
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
        keys = [
            audit_key(run_id, fiche_id, config, 0)
            for fiche_id in self._targets[:5]
            for config in self._configs
        ]
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
        if now - self._told_at >= PROGRESS_SECONDS:
            self._told_at = now
            await asyncio.to_thread(self._tell)

    def _write(self, moves: Sequence[LedgerMove], session: Session) -> None:
        fence_attempt(session, self._ticket)
        record_moves(session, self._ticket.run_id, moves, self._shop.clock.now())

    def _tell(self, *, in_log: bool = False) -> None:
        with self._shop.database.transaction() as session:
            record_progress(session, self._ticket, self._shop.clock.now(), in_log=in_log)

    def _end_audits(self) -> None:
        self._tell(in_log=True)
        if self._audits_end_at is None:
            return
        with self._shop.database.transaction() as session:
            if self._has_timed_out:
                words = f"Audit timeout/stall - finished {audit_progress(session, self._ticket)}"
                write_log(session, self._ticket.run_id, self._shop.clock.now(), "warning", words)
            write_notes(
                session, run_note(get_run(session, self._ticket.run_id), "DONE: audit-gate")
            )

    async def _watch_audits(self) -> None:
        """A line per poll while audits are waited for, and a warning whenever three polls in a row
        see no progress."""
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
            await asyncio.sleep(FENCE_CHECK_SECONDS)
            await asyncio.to_thread(self._check_fence)

    def _check_fence(self) -> None:
        with self._shop.database.transaction() as session:
            fence_attempt(session, self._ticket)
