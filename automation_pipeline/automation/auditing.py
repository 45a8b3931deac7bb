"""Auditing the fiches of a batch."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from automation_pipeline.audits.models.audits import AuditStatus, AuditSummary, FicheAuditRequest
from automation_pipeline.automation.models.runs import (
    FicheStage,
    LedgerMove,
    Phase,
    Reason,
    RunAttempt,
)
from automation_pipeline.automation.queries.ledger import (
    fiches_of_next_batch,
    is_audit_stored,
    is_transcription_due,
    pending_fiches,
)
from automation_pipeline.automation.queries.runs import (
    RunPlan,
    enter_phase,
    note_phase,
    run_plan,
    seconds_since_start,
)
from automation_pipeline.automation.rules.fiches import (
    NO_CONFIG,
    TIMED_OUT,
    ConfigAuditResult,
    failed_move,
    move_after_audits,
    work_key,
)
from automation_pipeline.automation.runs import audit_progress, log_fan_out
from automation_pipeline.automation.transcribing import (
    STALL_POLLS,
    BatchContext,
    BatchWork,
    transcription_request,
)
from automation_pipeline.core.background import together
from automation_pipeline.core.errors import AutomationError, InfrastructureError
from automation_pipeline.core.logs import log
from automation_pipeline.storage.database import Session
from automation_pipeline.transcription.models import TranscriptionSummary

_log = log(__name__)

# An audit that did not end is requested once more, even if failures are not retried.
MIN_RETRIES = 1


async def audit_target(
    ticket: RunAttempt,
    fiche_id: str,
    config_ids: Sequence[int],
    *,
    plan: RunPlan,
    context: BatchContext,
    until: float | None = None,
) -> LedgerMove:
    """Wait for the audits `until` that time of the event loop; audits that have ended by then
    count. Audits run one at a time, but a stalled audit does not delay the next one.
    InfrastructureError does not end an audit."""
    causes: dict[int, str] = {}
    audits: dict[int, asyncio.Task[ConfigAuditResult]] = {}
    try:
        async with asyncio.timeout_at(until), together() as group:
            for config_id in config_ids:
                first = FicheAuditRequest(
                    tracking_id=work_key(ticket.run_id, "audit", fiche_id, config_id),
                    fiche_id=fiche_id,
                    audit_config_id=config_id,
                    use_rlm=plan.selection.use_rlm,
                    trigger_source="automation",
                    schedule_id=plan.schedule.id,
                    run_id=ticket.run_id,
                )
                audits[config_id] = group.create_task(_audit(first, plan, context, causes))
                await asyncio.wait({audits[config_id]}, timeout=context.options.stall_seconds)
    except TimeoutError:
        pass
    results: list[ConfigAuditResult] = []
    for config_id in config_ids:
        task = audits.get(config_id)
        if task is not None and task.done() and not task.cancelled():
            results.append(task.result())
        else:
            cause = causes.get(config_id)
            results.append(ConfigAuditResult(config_id, None, cause, timed_out=True))
    return move_after_audits(fiche_id, results)


async def _audit(
    first: FicheAuditRequest, plan: RunPlan, context: BatchContext, causes: dict[int, str]
) -> ConfigAuditResult:
    config_id = first.audit_config_id
    end, failures, last = ConfigAuditResult(config_id, None), 0, max(plan.retries, MIN_RETRIES)
    for attempt in range(1 + last):
        request = first
        if failures:
            request = replace(first, tracking_id=f"{first.tracking_id}-retry-{failures}")
        try:
            audit = await _run_audit(request, context)
        except AutomationError as error:
            if isinstance(error, InfrastructureError) and attempt == last:
                raise
            end, causes[config_id] = ConfigAuditResult(config_id, None, str(error)), str(error)
            continue
        if audit.status is AuditStatus.COMPLETED:
            return ConfigAuditResult(config_id, completed=True)
        has_failed = audit.status is AuditStatus.FAILED
        end = ConfigAuditResult(
            config_id, completed=False if has_failed else None, error=audit.error
        )
        if audit.error:
            causes[config_id] = audit.error
        if has_failed and attempt >= plan.retries:
            break
        failures += has_failed
    return end


async def _run_audit(request: FicheAuditRequest, context: BatchContext) -> AuditSummary:
    """Request the audit again under the same key while it stalls and none of it is stored."""

    def is_stored() -> bool:
        with context.database.reading() as session:
            return is_audit_stored(session, request.tracking_id)

    while True:
        call = asyncio.ensure_future(context.audit(request))
        try:
            while not (await asyncio.wait({call}, timeout=context.options.stall_seconds))[0]:
                if not await asyncio.to_thread(is_stored):
                    break
            else:
                return call.result()
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)


async def audit_batch(ticket: RunAttempt, batch: int, *, context: BatchContext) -> Counter[str]:
    """The number of fiches per outcome, of those in the batch with fetched details and without a
    failed transcription. Does nothing if the schedule has no audits."""
    with context.database.transaction() as session:
        plan = run_plan(session, ticket.run_id)
        targets = pending_fiches(session, ticket.run_id, batch, FicheStage.FETCHED)
        if not plan.schedule.run_audits or not targets:
            return Counter()
        # The run's phase is the earliest unfinished one, because other batches may still be
        # transcribed. The phase of audits still starts with the first audit.
        is_earlier = plan.schedule.run_transcription and is_transcription_due(
            session, ticket.run_id
        )
        enter_phase(session, ticket, Phase.TRANSCRIBING if is_earlier else Phase.AUDITING)
        note_phase(session, ticket.run_id, ticket.attempt, Phase.AUDITING)
        spent = seconds_since_start(session, ticket.run_id)
        work = _AuditWork(ticket, Phase.AUDITING, plan, context)
        work.log_start(session, targets)
    if plan.configs:
        now = asyncio.get_running_loop().time()
        await work.run(batch, targets, now + context.options.audit_seconds - spent)
    else:
        moves = [failed_move(each, Reason.NO_AUDIT_CONFIG, NO_CONFIG) for each in targets]
        await work.record(moves)
        await work.record_progress(in_log=True)
    return work.ended


class _AuditWork(BatchWork):
    _has_timed_out = False

    def log_start(self, session: Session, targets: Sequence[str]) -> None:
        if not self.plan.configs:
            self.log(session, "error", f"{NO_CONFIG}; nothing can be audited")
            return
        keys = [
            work_key(self.run_id, "audit", fiche_id, config_id)
            for fiche_id in targets
            for config_id in self.plan.configs
        ]
        counts = f"{len(self.plan.configs)} configs × {len(targets)} fiches"
        self.log(session, "info", f"Running {counts} = {len(keys)} total audits")
        log_fan_out(
            session,
            self.run_id,
            self.context.clock.now(),
            "audit/run",
            keys,
            waits_for="audit gate (polling DB for audit completion)",
        )

    async def run(self, batch: int, targets: Sequence[str], until: float) -> None:
        left = iter(targets)
        async with self.fenced(), together() as background:
            watch, audited = background.create_task(self._watch_audits()), asyncio.Event()
            if self.context.options.transcribes_ahead and self.plan.schedule.run_transcription:
                background.create_task(self._transcribe_ahead(batch, audited))
            async with together() as group:
                for _ in range(self.context.options.audits_at_once):
                    group.create_task(self._audit_next(left, until))
            audited.set()
            watch.cancel()
        await self.record_progress(in_log=True)
        if self._has_timed_out:
            counts = await self.read(audit_progress, self.ticket)
            await self.write(self.log, "warning", f"Audit timeout/stall - finished {counts}")
        await self.write(self.note, "DONE: audit-gate")

    async def _transcribe_ahead(self, batch: int, audited: asyncio.Event) -> None:
        """Transcribe the next batch until the audits of this one end, so that the provider is not
        idle. The next batch's own step handles any errors."""
        fiche_ids = await self.read(fiches_of_next_batch, self.run_id, batch)
        requests = [transcription_request(self.run_id, each, self.plan) for each in fiche_ids]
        try:
            started = await self.context.begin_transcriptions(requests)
            run_ids = [one.run_id for one in started if isinstance(one, TranscriptionSummary)]
            if run_ids:
                await self.context.transcribe(run_ids, [], audited)
        except AutomationError as error:
            _log.info("The next batch is not transcribed ahead: %s", error)

    async def _audit_next(self, left: Iterator[str], until: float) -> None:
        """Audit one fiche after the other; the workers share the iterator."""
        for fiche_id in left:
            move = await audit_target(
                self.ticket,
                fiche_id,
                self.plan.configs,
                plan=self.plan,
                context=self.context,
                until=until,
            )
            self._has_timed_out |= TIMED_OUT in (move.error or "")
            await self.record([move])

    async def _watch_audits(self) -> None:
        """Log a line per poll while audits run, and a warning whenever three polls in a row show no
        progress."""
        last, unchanged = "", 0
        while True:
            await asyncio.sleep(self.context.options.audit_poll_seconds)
            await self.record_progress(in_log=True)
            counts = await self.read(audit_progress, self.ticket)
            unchanged = unchanged + 1 if counts == last else 0
            last = counts
            if unchanged == STALL_POLLS:
                unchanged = 0
                await self.write(
                    self.log, "warning", "Audits stalled; extending wait", {"finished": counts}
                )
