"""Transcribing the fiches of a batch."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.audits.models.audits import AuditSummary, FicheAuditRequest
from automation_pipeline.automation.events import run_note
from automation_pipeline.automation.models.runs import (
    FicheStage,
    LedgerMove,
    OutcomeStatus,
    Phase,
    RunAttempt,
)
from automation_pipeline.automation.queries.ledger import (
    mark_transcribed,
    pending_fiches,
    record_moves,
    runs_over,
    untranscribed,
    why_untranscribed,
    work_due,
)
from automation_pipeline.automation.queries.runs import (
    RunPlan,
    enter_phase,
    fence_attempt,
    get_run,
    run_plan,
    seconds_since_start,
    write_log,
)
from automation_pipeline.automation.rules.fiches import move_after_transcription, transcription_key
from automation_pipeline.automation.runs import record_progress
from automation_pipeline.core.background import together
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError, InfrastructureError
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes
from automation_pipeline.transcription.models import (
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionStatus,
    TranscriptionSummary,
)

STALL_POLLS = 3


@dataclass(frozen=True)
class WorkOptions:
    """`transcription_seconds` and `audit_seconds` are the time budgets of transcripts and audits.
    They count from the start of the run, over all batches and attempts.

    `transcribes_ahead`: an audit step also transcribes the recordings of the next batch. This is
    for runs in one process, which execute one step at a time.

    `audit_poll_seconds` is the interval of the log lines about audits. Three lines without progress
    are a stall.
    """

    transcription_seconds: float
    audit_seconds: float
    longest_pause_seconds: float
    audits_at_once: int
    audit_poll_seconds: float = 60.0
    transcribes_ahead: bool = False

    @property
    def stall_seconds(self) -> float:
        return STALL_POLLS * self.audit_poll_seconds


@dataclass(frozen=True)
class BatchContext:
    """The services that process a batch. Provider clients are created on first use.

    `begin_transcriptions` returns, per request and in order, the run that processes the fiche or
    the reason why none does. `transcribe` works until the runs of the given ids end, and claims no
    more work once `stop` is set; its second argument names the runs that this run started.
    """

    database: Database
    clock: Clock
    options: WorkOptions
    begin_transcriptions: Callable[
        [Sequence[TranscriptionRunRequest]],
        Awaitable[Sequence[TranscriptionSummary | AutomationError]],
    ]
    transcribe: Callable[..., Awaitable[object]]
    audit: Callable[[FicheAuditRequest], Awaitable[AuditSummary]]


FIRST_PAUSE_SECONDS = 0.2
POLL_RUNS_SECONDS = 1.0
LOG_EVERY_SECONDS = 10.0
MAX_KEYS = 5
FENCE_CHECK_SECONDS = 2.0
PROGRESS_SECONDS = 2.0


class BatchOutcomes:
    """Writes the outcomes of a batch's fiches to the ledger, with the run's progress. `ended`
    counts them by status."""

    def __init__(self, ticket: RunAttempt, phase: Phase, context: BatchContext) -> None:
        self._ticket, self._phase, self._context = ticket, phase, context
        self.ended: Counter[str] = Counter()
        self._progress_at = 0.0

    async def record(self, moves: Sequence[LedgerMove]) -> None:
        move = RunMoves(self._ticket, moves, self._context.clock.now())
        await self._context.database.write_in_bulk(_record_moves, move)
        self.ended.update(move.status for move in moves)
        now = asyncio.get_running_loop().time()
        if now - self._progress_at >= PROGRESS_SECONDS:
            self._progress_at = now
            await asyncio.to_thread(self.record_progress)

    def record_progress(self, *, in_log: bool = False) -> None:
        now = self._context.clock.now()
        with self._context.database.transaction() as session:
            record_progress(session, self._ticket, now, in_log=in_log, step=self._phase)

    @asynccontextmanager
    async def fenced(self) -> AsyncGenerator[None]:
        """Cancel the work if a newer attempt starts or the run is cancelled."""
        async with together() as group:
            watch = group.create_task(self._watch_fence())
            yield
            watch.cancel()

    async def _watch_fence(self) -> None:
        while True:
            await asyncio.sleep(FENCE_CHECK_SECONDS)
            await asyncio.to_thread(self._check_fence)

    def _check_fence(self) -> None:
        with self._context.database.transaction() as session:
            fence_attempt(session, self._ticket)


@dataclass(frozen=True)
class RunMoves:
    ticket: RunAttempt
    moves: Sequence[LedgerMove]
    at: datetime


def _record_moves(session: Session, moved: Sequence[RunMoves]) -> list[None]:
    for ticket in dict.fromkeys(each.ticket for each in moved):
        fence_attempt(session, ticket)
        of_run = [each for each in moved if each.ticket == ticket]
        moves = [move for each in of_run for move in each.moves]
        record_moves(session, ticket.run_id, moves, max(each.at for each in of_run))
    return [None] * len(moved)


async def transcribe_batch(
    ticket: RunAttempt, batch: int, *, context: BatchContext
) -> Counter[str]:
    """The number of fiches per outcome. Fiches to audit stay pending; a fiche that cannot be
    transcribed fails. Does nothing if the schedule has no transcription."""
    with context.database.transaction() as session:
        plan = run_plan(session, ticket.run_id)
        targets = pending_fiches(session, ticket.run_id, batch, FicheStage.FETCHED)
        if not plan.schedule.run_transcription or not targets:
            return Counter()
        enter_phase(session, ticket, Phase.TRANSCRIBING)
        spent = seconds_since_start(session, ticket.run_id)
    outcomes = BatchOutcomes(ticket, Phase.TRANSCRIBING, context)

    async def ready(fiche_ids: Sequence[str]) -> None:
        if not plan.schedule.run_audits:
            done = OutcomeStatus.SUCCESSFUL
            await outcomes.record(
                [LedgerMove(each, done, stage=FicheStage.FETCHED) for each in fiche_ids]
            )

    async def lost(failures: Mapping[str, TranscriptionFailure]) -> None:
        await outcomes.record(
            [
                move_after_transcription(each, why.cause, timed_out=why.timed_out)
                for each, why in failures.items()
            ]
        )

    until = asyncio.get_running_loop().time() + context.options.transcription_seconds - spent
    async with outcomes.fenced():
        callbacks = TranscriptionCallbacks(ready, lost)
        await transcribe_targets(
            ticket, targets, plan=plan, context=context, until=until, callbacks=callbacks
        )
    await asyncio.to_thread(outcomes.record_progress)
    return outcomes.ended


@dataclass(frozen=True)
class TranscriptionFailure:
    """Why a fiche fails with missing transcripts."""

    cause: str | None
    timed_out: bool = False


@dataclass(frozen=True)
class TranscriptionCallbacks:
    """Receive the fiches with all transcripts (`ready`) and the failed ones (`lost`). A call that
    the deadline interrupts is repeated."""

    ready: Callable[[Sequence[str]], Awaitable[None]]
    lost: Callable[[Mapping[str, TranscriptionFailure]], Awaitable[None]]


@dataclass(frozen=True)
class _Try:
    """One attempt at a fiche: the run that it follows, or why there is none. `is_over`: that run
    had already ended."""

    number: int
    key: str
    run_id: str | None = None
    cause: str | None = None
    is_over: bool = False

    @property
    def has_joined(self) -> bool:
        return self.run_id is not None and self.run_id != self.key


def transcription_request(
    run_id: int, fiche_id: str, plan: RunPlan, attempt: int = 0
) -> TranscriptionRunRequest:
    return TranscriptionRunRequest(
        transcription_key(run_id, fiche_id, attempt),
        fiche_id,
        TranscriptionPriority(plan.schedule.transcription_priority),
        fresh_since=plan.since,
        renew_before=plan.renew_before,
    )


async def transcribe_targets(
    ticket: RunAttempt,
    fiche_ids: Sequence[str],
    *,
    plan: RunPlan,
    context: BatchContext,
    until: float,
    callbacks: TranscriptionCallbacks,
) -> None:
    """Report every fiche to one of the callbacks as soon as its own attempts end, at the latest at
    `until` (event loop time). Runs that are already in progress are joined. InfrastructureError is
    not a failure of a fiche: it fails the step, which is retried."""
    if fiche_ids:
        await _TranscriptionGate(ticket, list(fiche_ids), plan, context, callbacks).run(until)


class _TranscriptionGate:
    def __init__(
        self,
        ticket: RunAttempt,
        left: list[str],
        plan: RunPlan,
        context: BatchContext,
        callbacks: TranscriptionCallbacks,
    ) -> None:
        self._ticket, self._run_id, self._left = ticket, ticket.run_id, left
        self._plan, self._context, self._callbacks = plan, context, callbacks
        self._following: dict[str, _Try] = {}
        self._logged_at = 0.0

    async def run(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._collect_ready()
                await self._begin(dict.fromkeys(self._left, 0))
                await self._follow()
        except TimeoutError:
            await self._collect_ready()
            if self._left:
                await self._write(
                    lambda session: self._log_counts(
                        session, "warning", "timeout/stall - completed "
                    )
                )
                await self._fail(self._left, timed_out=True)
        except InfrastructureError:
            await self._collect_ready()
            raise
        await self._write(self._note_done)

    async def _follow(self) -> None:
        pause, polled_at = FIRST_PAUSE_SECONDS, 0.0
        loop = asyncio.get_running_loop()
        async with together() as group:
            work: asyncio.Task[None] | None = None
            while self._left:
                if work is None:
                    work = group.create_task(self._work())
                await asyncio.wait({work}, timeout=pause)
                is_poll_due = work.done() or loop.time() - polled_at >= POLL_RUNS_SECONDS
                over = await asyncio.to_thread(self._ended_attempts) if is_poll_due else {}
                polled_at = loop.time() if is_poll_due else polled_at
                has_ready = await self._collect_ready()
                has_ended = await self._retry_or_fail(
                    {each: cause for each, cause in over.items() if each in self._left}
                )
                work = None if work.done() else work
                at_once = has_ready or has_ended
                pause = (
                    FIRST_PAUSE_SECONDS
                    if at_once
                    else min(1.5 * pause, self._context.options.longest_pause_seconds)
                )
            # The worker is not cancelled: it claims no more work, and finishes calls in progress
            # for other batches, because they are already paid for.

    async def _work(self) -> None:
        """Process the runs that the batch follows. An error of the worker as a whole is the cause
        for all of their fiches."""
        followed = {
            each: one
            for each in self._left
            if (one := self._following[each]).run_id and not one.is_over
        }
        try:
            if followed:
                run_ids = [one.run_id for one in followed.values() if one.run_id]
                await self._context.transcribe(
                    run_ids, [one.key for one in followed.values() if not one.has_joined]
                )
        except InfrastructureError:
            raise
        except AutomationError as error:
            for fiche_id, one in followed.items():
                self._following[fiche_id] = _Try(one.number, one.key, cause=str(error))

    def _ended_attempts(self) -> dict[str, str | None]:
        """Fiches whose attempt has ended, with the run's own error if it failed as a whole."""
        attempts = {fiche_id: self._following[fiche_id] for fiche_id in self._left}
        with self._context.database.reading() as session:
            ended = runs_over(session, [one.run_id for one in attempts.values() if one.run_id])
        return {
            fiche_id: one.cause or ended.get(one.run_id or "")
            for fiche_id, one in attempts.items()
            if one.run_id is None or one.is_over or one.run_id in ended
        }

    async def _retry_or_fail(self, over: Mapping[str, str | None]) -> bool:
        """Retry each fiche whose attempt ended, or fail it. True if there was one."""
        again, lost = dict[str, int](), list[str]()
        for fiche_id in over:
            one = self._following[fiche_id]
            if one.has_joined and self._plan.renew_before is not None:
                again[fiche_id] = one.number  # a joined run may not have renewed the transcripts
            elif one.number < self._plan.retries:
                again[fiche_id] = one.number + 1
            else:
                lost.append(fiche_id)
        if lost:
            await self._fail(lost, causes=over)
        if again:
            await self._begin(again)
        return bool(again or lost)

    async def _begin(self, attempts: Mapping[str, int]) -> None:
        chosen = {each: number for each, number in attempts.items() if each in self._left}
        if not chosen:
            return
        requests = [
            transcription_request(self._run_id, fiche_id, self._plan, number)
            for fiche_id, number in chosen.items()
        ]
        await self._write(
            lambda session: self._log_dispatch(session, requests, max(chosen.values()))
        )
        try:
            started = await self._context.begin_transcriptions(requests)
        except InfrastructureError:
            raise
        except AutomationError as error:
            started = [error] * len(requests)
        for request, one in zip(requests, started, strict=True):
            number = chosen[request.fiche_id]
            if isinstance(one, AutomationError):
                self._following[request.fiche_id] = _Try(number, request.run_id, cause=str(one))
            else:
                is_over = one.status is not TranscriptionStatus.RUNNING
                self._following[request.fiche_id] = _Try(
                    number, request.run_id, one.run_id, one.error, is_over
                )

    async def _collect_ready(self) -> bool:
        """Whether more fiches have all their transcripts since the last call."""
        lacking = await asyncio.to_thread(self._untranscribed)
        complete = [fiche_id for fiche_id in self._left if not lacking.get(fiche_id, 1)]
        if complete:
            await self._write(lambda session: self._mark_complete(session, complete))
            await self._callbacks.ready(complete)
            # Remove them last: if the deadline interrupts this call, the repeated call must find
            # them again.
            self._remove(complete)
        return bool(complete)

    async def _fail(
        self,
        fiche_ids: Sequence[str],
        *,
        causes: Mapping[str, str | None] | None = None,
        timed_out: bool = False,
    ) -> None:
        with_recordings = await asyncio.to_thread(self._causes, fiche_ids)
        known = causes or {each: one.cause for each, one in self._following.items()}
        failures = {
            each: TranscriptionFailure(with_recordings.get(each) or known.get(each), timed_out)
            for each in fiche_ids
        }
        await self._callbacks.lost(failures)
        self._remove(fiche_ids)

    def _remove(self, fiche_ids: Sequence[str]) -> None:
        removed = set(fiche_ids)
        self._left = [fiche_id for fiche_id in self._left if fiche_id not in removed]

    def _untranscribed(self) -> dict[str, int]:
        with self._context.database.reading() as session:
            return dict(untranscribed(session, self._left, self._plan.renew_before))

    def _causes(self, fiche_ids: Sequence[str]) -> dict[str, str]:
        with self._context.database.reading() as session:
            return why_untranscribed(session, fiche_ids)

    async def _write(self, write: Callable[[Session], None]) -> None:
        def act() -> None:
            with self._context.database.transaction() as session:
                write(session)

        await asyncio.to_thread(act)

    def _mark_complete(self, session: Session, complete: Sequence[str]) -> None:
        fence_attempt(session, self._ticket)
        mark_transcribed(session, self._run_id, complete, self._context.clock.now())
        now = self._context.clock.now().timestamp()
        if len(complete) == len(self._left) or now - self._logged_at >= LOG_EVERY_SECONDS:
            self._logged_at = now
            session.flush()
            self._log_counts(session, "info", "progress: ")

    def _log_counts(self, session: Session, level: str, prefix: str) -> None:
        due = work_due(session, self._run_id)
        message = f"Transcription {prefix}{due.transcribed}/{due.fiches}"
        write_log(session, self._run_id, self._context.clock.now(), level, message)

    def _log_dispatch(
        self, session: Session, requests: Sequence[TranscriptionRunRequest], attempt: int
    ) -> None:
        retries = self._plan.retries
        message = (
            f"Retrying transcriptions ({attempt}/{retries})"
            if attempt
            else "Dispatched fiche/transcribe fan-out events"
        )
        details = {
            "count": len(requests),
            "keys": [request.run_id for request in requests[:MAX_KEYS]],
        }
        level = "warning" if attempt else "info"
        write_log(session, self._run_id, self._context.clock.now(), level, message, details)
        if not attempt:
            run = get_run(session, self._run_id)
            waiting = run_note(
                run, "WAITING: transcription gate (polling DB for has_transcription)"
            )
            write_notes(
                session, run_note(run, f"FAN-OUT: fiche/transcribe x{len(requests)}"), waiting
            )

    def _note_done(self, session: Session) -> None:
        write_notes(session, run_note(get_run(session, self._run_id), "DONE: transcription-gate"))
