"""Auditing the fiches of a batch."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from automation_pipeline.audits.models.audits import AuditStatus, AuditSummary, FicheAuditRequest
from automation_pipeline.automation.events import run_note
from automation_pipeline.automation.models.runs import (
    FicheStage,
    LedgerMove,
    Phase,
    Reason,
    RunAttempt,
)
from automation_pipeline.automation.queries.ledger import (
    is_audit_stored,
    is_transcription_due,
    pending_batches,
    pending_fiches,
)
from automation_pipeline.automation.queries.runs import (
    RunPlan,
    enter_phase,
    get_run,
    note_phase,
    run_plan,
    seconds_since_start,
    write_log,
)
from automation_pipeline.automation.rules.fiches import (
    NO_CONFIG,
    TIMED_OUT,
    ConfigAuditResult,
    audit_key,
    failed_move,
    move_after_audits,
    retry_suffix,
)
from automation_pipeline.automation.runs import audit_progress
from automation_pipeline.automation.transcribing import (
    STALL_POLLS,
    BatchContext,
    BatchOutcomes,
    transcription_request,
)
from automation_pipeline.core.background import together
from automation_pipeline.core.errors import AutomationError, InfrastructureError
from automation_pipeline.core.logs import log
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.history import write_notes
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
                audits[config_id] = group.create_task(
                    _audit(_first_request(ticket, fiche_id, config_id, plan), plan, context, causes)
                )
                await asyncio.wait({audits[config_id]}, timeout=context.options.stall_seconds)
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
    ticket: RunAttempt, fiche_id: str, config_id: int, plan: RunPlan
) -> FicheAuditRequest:
    return FicheAuditRequest(
        tracking_id=audit_key(ticket.run_id, fiche_id, config_id, 0),
        fiche_id=fiche_id,
        audit_config_id=config_id,
        use_rlm=plan.selection.use_rlm,
        trigger_source="automation",
        schedule_id=plan.schedule.id,
        run_id=ticket.run_id,
    )


async def _audit(
    first: FicheAuditRequest, plan: RunPlan, context: BatchContext, causes: dict[int, str]
) -> ConfigAuditResult:
    config_id = first.audit_config_id
    end, failures, last = ConfigAuditResult(config_id, None), 0, max(plan.retries, MIN_RETRIES)
    for attempt in range(1 + last):
        request = replace(first, tracking_id=f"{first.tracking_id}{retry_suffix(failures)}")
        try:
            status = await _run_audit(request, context)
        except AutomationError as error:
            if isinstance(error, InfrastructureError) and attempt == last:
                raise
            end, causes[config_id] = ConfigAuditResult(config_id, None, str(error)), str(error)
            continue
        if status.status is AuditStatus.COMPLETED:
            return ConfigAuditResult(config_id, completed=True)
        has_failed = status.status is AuditStatus.FAILED
        end = ConfigAuditResult(
            config_id, completed=False if has_failed else None, error=status.error
        )
        if status.error:
            causes[config_id] = status.error
        if has_failed and attempt >= plan.retries:
            break
        failures += has_failed
    return end


async def _run_audit(request: FicheAuditRequest, context: BatchContext) -> AuditSummary:
    """Request the audit again under the same key while it stalls and none of it is stored."""
    while True:
        call = asyncio.ensure_future(context.audit(request))
        try:
            while not (await asyncio.wait({call}, timeout=context.options.stall_seconds))[0]:
                if not await asyncio.to_thread(_is_stored, request.tracking_id, context):
                    break
            else:
                return call.result()
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)


def _is_stored(tracking_id: str, context: BatchContext) -> bool:
    with context.database.reading() as session:
        return is_audit_stored(session, tracking_id)


async def audit_batch(ticket: RunAttempt, batch: int, *, context: BatchContext) -> Counter[str]:
    """The number of fiches per outcome, of those in the batch with fetched details and without a
    failed transcription. Does nothing if the schedule has no audits."""
    with context.database.transaction() as session:
        plan = run_plan(session, ticket.run_id)
        targets = pending_fiches(session, ticket.run_id, batch, FicheStage.FETCHED)
        if not plan.schedule.run_audits or not targets:
            return Counter()
        _enter_audits(session, ticket, plan)
        spent = seconds_since_start(session, ticket.run_id)
        _log_start(session, ticket, targets, plan.configs, context)
    return await _AuditBatch(ticket, batch, targets, plan, context).run(spent)


def _enter_audits(session: Session, ticket: RunAttempt, plan: RunPlan) -> None:
    """The run's phase is the earliest unfinished one, because other batches may still be
    transcribed. The time budget of audits still starts with the first audit."""
    is_earlier = plan.schedule.run_transcription and is_transcription_due(session, ticket.run_id)
    enter_phase(session, ticket, Phase.TRANSCRIBING if is_earlier else Phase.AUDITING)
    note_phase(session, ticket.run_id, ticket.attempt, Phase.AUDITING)


def _log_start(
    session: Session,
    ticket: RunAttempt,
    targets: Sequence[str],
    config_ids: Sequence[int],
    context: BatchContext,
) -> None:
    run_id, now = ticket.run_id, context.clock.now()
    if not config_ids:
        write_log(session, run_id, now, "error", f"{NO_CONFIG}; nothing can be audited")
        return
    configs, fiches = len(config_ids), len(targets)
    audits = configs * fiches
    message = f"Running {configs} configs × {fiches} fiches = {audits} total audits"
    write_log(session, run_id, now, "info", message)
    keys = [audit_key(run_id, fiche, config, 0) for fiche in targets[:5] for config in config_ids]
    count = {"count": audits, "keys": keys[:5]}
    write_log(session, run_id, now, "info", "Dispatched audit/run fan-out events", count)
    run = get_run(session, run_id)
    waiting = run_note(run, "WAITING: audit gate (polling DB for audit completion)")
    write_notes(session, run_note(run, f"FAN-OUT: audit/run x{audits}"), waiting)


class _AuditBatch:
    def __init__(
        self,
        ticket: RunAttempt,
        number: int,
        targets: Sequence[str],
        plan: RunPlan,
        context: BatchContext,
    ) -> None:
        self._ticket, self._number, self._targets = ticket, number, targets
        self._plan, self._context = plan, context
        self._outcomes = BatchOutcomes(ticket, Phase.AUDITING, context)
        self._has_timed_out = False

    async def run(self, spent_seconds: float) -> Counter[str]:
        """`spent_seconds`: the time since the start of the run."""
        if not self._plan.configs:
            await self._outcomes.record(
                [failed_move(each, Reason.NO_AUDIT_CONFIG, NO_CONFIG) for each in self._targets]
            )
        else:
            now = asyncio.get_running_loop().time()
            await self._audit(now + self._context.options.audit_seconds - spent_seconds)
        await asyncio.to_thread(self._log_end)
        return self._outcomes.ended

    async def _audit(self, until: float) -> None:
        left = iter(self._targets)
        async with self._outcomes.fenced(), together() as background:
            watch, audited = background.create_task(self._watch_audits()), asyncio.Event()
            if self._context.options.transcribes_ahead and self._plan.schedule.run_transcription:
                background.create_task(self._transcribe_ahead(audited))
            async with together() as group:
                for _ in range(self._context.options.audits_at_once):
                    group.create_task(self._audit_next(left, until))
            audited.set()
            watch.cancel()

    async def _transcribe_ahead(self, audited: asyncio.Event) -> None:
        """Transcribe the next batch until the audits of this one end, so that the provider is not
        idle. The next batch's own step handles any errors."""
        fiche_ids = await asyncio.to_thread(self._next_fiches)
        requests = [
            transcription_request(self._ticket.run_id, each, self._plan) for each in fiche_ids
        ]
        try:
            started = await self._context.begin_transcriptions(requests)
            run_ids = [one.run_id for one in started if isinstance(one, TranscriptionSummary)]
            if run_ids:
                await self._context.transcribe(run_ids, [], audited)
        except AutomationError as error:
            _log.info("The next batch is not transcribed ahead: %s", error)

    def _next_fiches(self) -> list[str]:
        with self._context.database.reading() as session:
            later = [
                each
                for each in pending_batches(session, self._ticket.run_id)
                if each > self._number
            ]
            if not later:
                return []
            return pending_fiches(session, self._ticket.run_id, later[0], FicheStage.FETCHED)

    async def _audit_next(self, left: Iterator[str], until: float) -> None:
        """Audit one fiche after the other; the workers share the iterator."""
        for fiche_id in left:
            move = await audit_target(
                self._ticket,
                fiche_id,
                self._plan.configs,
                plan=self._plan,
                context=self._context,
                until=until,
            )
            self._has_timed_out |= TIMED_OUT in (move.error or "")
            await self._outcomes.record([move])

    def _log_end(self) -> None:
        self._outcomes.record_progress(in_log=True)
        if not self._plan.configs:
            return
        with self._context.database.transaction() as session:
            if self._has_timed_out:
                message = f"Audit timeout/stall - finished {audit_progress(session, self._ticket)}"
                write_log(
                    session, self._ticket.run_id, self._context.clock.now(), "warning", message
                )
            write_notes(
                session, run_note(get_run(session, self._ticket.run_id), "DONE: audit-gate")
            )

    async def _watch_audits(self) -> None:
        """Log a line per poll while audits run, and a warning whenever three polls in a row show no
        progress."""
        last, unchanged = "", 0
        while True:
            await asyncio.sleep(self._context.options.audit_poll_seconds)
            counts = await asyncio.to_thread(self._poll_audits)
            unchanged = unchanged + 1 if counts == last else 0
            last = counts
            if unchanged == STALL_POLLS:
                unchanged = 0
                await asyncio.to_thread(self._log_stall, counts)

    def _poll_audits(self) -> str:
        self._outcomes.record_progress(in_log=True)
        with self._context.database.reading() as session:
            return audit_progress(session, self._ticket)

    def _log_stall(self, counts: str) -> None:
        with self._context.database.transaction() as session:
            details = {"finished": counts}
            run_id, now = self._ticket.run_id, self._context.clock.now()
            write_log(session, run_id, now, "warning", "Audits stalled; extending wait", details)
