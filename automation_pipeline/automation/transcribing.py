"""Transcribing the fiches of a batch."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

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
from automation_pipeline.automation.rules.fiches import move_after_transcription, work_key
from automation_pipeline.automation.runs import MAX_KEYS, log_fan_out, record_progress
from automation_pipeline.core.background import together
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError, InfrastructureError
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.types import JsonObject
from automation_pipeline.transcription.models import (
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionStatus,
    TranscriptionSummary,
)

FIRST_PAUSE_SECONDS = 0.2
POLL_RUNS_SECONDS = 1.0
LOG_EVERY_SECONDS = 10.0
FENCE_CHECK_SECONDS = 2.0
PROGRESS_SECONDS = 2.0
STALL_POLLS = 3
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


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


@dataclass(frozen=True)
class _RunMoves:
    ticket: RunAttempt
    moves: Sequence[LedgerMove]
    at: datetime


def _record_moves(session: Session, moved: Sequence[_RunMoves]) -> list[None]:
    for ticket in dict.fromkeys(each.ticket for each in moved):
        fence_attempt(session, ticket)
        of_run = [each for each in moved if each.ticket == ticket]
        moves = [move for each in of_run for move in each.moves]
        record_moves(session, ticket.run_id, moves, max(each.at for each in of_run))
    return [None] * len(moved)


class BatchWork:
    """The work of one step on the fiches of a batch. `ended` counts the fiches by status."""

    def __init__(
        self, ticket: RunAttempt, phase: Phase, plan: RunPlan, context: BatchContext
    ) -> None:
        self.ticket, self.run_id, self.plan, self.context = ticket, ticket.run_id, plan, context
        self.ended: Counter[str] = Counter()
        self._phase, self._progress_at = phase, 0.0

    async def read(
        self,
        query: Callable[Concatenate[Session, Arguments], Result],
        *args: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        return await asyncio.to_thread(self.context.database.read, query, *args, **options)

    async def write(
        self,
        change: Callable[Concatenate[Session, Arguments], object],
        *args: Arguments.args,
        **options: Arguments.kwargs,
    ) -> None:
        """Run the change in a thread, in a transaction."""

        def act() -> None:
            with self.context.database.transaction() as session:
                change(session, *args, **options)

        await asyncio.to_thread(act)

    def log(
        self, session: Session, level: str, message: str, details: JsonObject | None = None
    ) -> None:
        write_log(session, self.run_id, self.context.clock.now(), level, message, details)

    def note(self, session: Session, message: str) -> None:
        write_notes(session, run_note(get_run(session, self.run_id), message))

    async def record(self, moves: Sequence[LedgerMove]) -> None:
        """Write the outcomes to the ledger and, every few seconds, the run's progress."""
        of_run = _RunMoves(self.ticket, moves, self.context.clock.now())
        await self.context.database.write_in_bulk(_record_moves, of_run)
        self.ended.update(move.status for move in moves)
        now = asyncio.get_running_loop().time()
        if now - self._progress_at >= PROGRESS_SECONDS:
            self._progress_at = now
            await self.record_progress()

    async def record_progress(self, *, in_log: bool = False) -> None:
        now = self.context.clock.now()
        await self.write(record_progress, self.ticket, now, in_log=in_log, step=self._phase)

    @asynccontextmanager
    async def fenced(self) -> AsyncGenerator[None]:
        """Cancel the work if a newer attempt starts or the run is cancelled."""

        async def check_fence() -> None:
            while True:
                await asyncio.sleep(FENCE_CHECK_SECONDS)
                await self.write(fence_attempt, self.ticket)

        async with together() as group:
            watch = group.create_task(check_fence())
            yield
            watch.cancel()


async def transcribe_batch(
    ticket: RunAttempt, batch: int, *, context: BatchContext
) -> Counter[str]:
    """The number of fiches per outcome. Fiches to audit stay pending; a fiche that cannot be
    transcribed fails. Does nothing if the schedule has no transcription.

    Runs that are already in progress are joined. InfrastructureError is not a failure of a fiche:
    it fails the step, which is retried.
    """
    with context.database.transaction() as session:
        plan = run_plan(session, ticket.run_id)
        targets = pending_fiches(session, ticket.run_id, batch, FicheStage.FETCHED)
        if not plan.schedule.run_transcription or not targets:
            return Counter()
        enter_phase(session, ticket, Phase.TRANSCRIBING)
        spent = seconds_since_start(session, ticket.run_id)
    until = asyncio.get_running_loop().time() + context.options.transcription_seconds - spent
    work = _TranscriptionWork(ticket, Phase.TRANSCRIBING, plan, context)
    async with work.fenced():
        await work.run(targets, until)
    await work.record_progress()
    return work.ended


def transcription_request(
    run_id: int, fiche_id: str, plan: RunPlan, attempt: int = 0
) -> TranscriptionRunRequest:
    return TranscriptionRunRequest(
        work_key(run_id, "transcribe", fiche_id, attempt=attempt),
        fiche_id,
        TranscriptionPriority(plan.schedule.transcription_priority),
        fresh_since=plan.since,
        renew_before=plan.renew_before,
    )


@dataclass(frozen=True)
class _FicheAttempt:
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


class _TranscriptionWork(BatchWork):
    """Records each fiche as soon as its own attempts end, at the latest when the time is over."""

    _left: Sequence[str] = ()
    _logged_at = 0.0

    async def run(self, targets: Sequence[str], until: float) -> None:
        self._left, self._following = targets, dict[str, _FicheAttempt]()
        try:
            async with asyncio.timeout_at(until):
                await self._collect_ready()
                await self._begin(dict.fromkeys(self._left, 0))
                await self._follow()
        except TimeoutError:
            await self._collect_ready()
            if self._left:
                await self.write(self._log_counts, "warning", "timeout/stall - completed ")
                causes = {each: one.cause for each, one in self._following.items()}
                await self._fail(self._left, causes, timed_out=True)
        except InfrastructureError:
            await self._collect_ready()
            raise
        await self.write(self.note, "DONE: transcription-gate")

    async def _follow(self) -> None:
        pause, polled_at = FIRST_PAUSE_SECONDS, 0.0
        loop = asyncio.get_running_loop()
        async with together() as group:
            work: asyncio.Task[None] | None = None
            while self._left:
                if work is None:
                    work = group.create_task(self._transcribe())
                await asyncio.wait({work}, timeout=pause)
                over: dict[str, str | None] = {}
                if work.done() or loop.time() - polled_at >= POLL_RUNS_SECONDS:
                    over = await self.read(self._ended_attempts)
                    polled_at = loop.time()
                has_ready = await self._collect_ready()
                over = {each: cause for each, cause in over.items() if each in self._left}
                await self._retry_or_fail(over)
                work = None if work.done() else work
                longer = min(1.5 * pause, self.context.options.longest_pause_seconds)
                pause = FIRST_PAUSE_SECONDS if has_ready or over else longer
            # The worker is not cancelled: it claims no more work, and finishes calls in progress
            # for other batches, because they are already paid for.

    async def _transcribe(self) -> None:
        """Process the runs that the batch follows. An error of the worker as a whole is the cause
        for all of their fiches."""
        followed = {
            each: one
            for each in self._left
            if (one := self._following[each]).run_id and not one.is_over
        }
        if not followed:
            return
        own = [one.key for one in followed.values() if not one.has_joined]
        try:
            await self.context.transcribe([one.run_id for one in followed.values()], own)
        except InfrastructureError:
            raise
        except AutomationError as error:
            for fiche_id, one in followed.items():
                self._following[fiche_id] = _FicheAttempt(one.number, one.key, cause=str(error))

    def _ended_attempts(self, session: Session) -> dict[str, str | None]:
        """Fiches whose attempt has ended, with the run's own error if it failed as a whole."""
        attempts = {fiche_id: self._following[fiche_id] for fiche_id in self._left}
        ended = runs_over(session, [one.run_id for one in attempts.values() if one.run_id])
        over: dict[str, str | None] = {}
        for fiche_id, one in attempts.items():
            if one.run_id is None or one.is_over:
                over[fiche_id] = one.cause
            elif one.run_id in ended:
                over[fiche_id] = ended[one.run_id]
        return over

    async def _retry_or_fail(self, over: Mapping[str, str | None]) -> None:
        again, lost = dict[str, int](), list[str]()
        for fiche_id in over:
            one = self._following[fiche_id]
            if one.has_joined and self.plan.renew_before is not None:
                again[fiche_id] = one.number  # a joined run may not have renewed the transcripts
            elif one.number < self.plan.retries:
                again[fiche_id] = one.number + 1
            else:
                lost.append(fiche_id)
        if lost:
            await self._fail(lost, over)
        await self._begin(again)

    async def _begin(self, attempts: Mapping[str, int]) -> None:
        if not attempts:
            return
        requests = [
            transcription_request(self.run_id, fiche_id, self.plan, number)
            for fiche_id, number in attempts.items()
        ]
        await self.write(self._log_dispatch, requests, max(attempts.values()))
        try:
            started = await self.context.begin_transcriptions(requests)
        except InfrastructureError:
            raise
        except AutomationError as error:
            started = [error] * len(requests)
        for request, one in zip(requests, started, strict=True):
            number, key = attempts[request.fiche_id], request.run_id
            if isinstance(one, AutomationError):
                attempt = _FicheAttempt(number, key, cause=str(one))
            else:
                is_over = one.status is not TranscriptionStatus.RUNNING
                attempt = _FicheAttempt(number, key, one.run_id, one.error, is_over)
            self._following[request.fiche_id] = attempt

    async def _collect_ready(self) -> bool:
        """Whether more fiches have all their transcripts since the last call."""
        lacking = await self.read(untranscribed, self._left, self.plan.renew_before)
        complete = [fiche_id for fiche_id in self._left if not lacking.get(fiche_id, 1)]
        if complete:
            await self.write(self._mark_complete, complete)
            if not self.plan.schedule.run_audits:
                done = OutcomeStatus.SUCCESSFUL
                await self.record(
                    [LedgerMove(each, done, stage=FicheStage.FETCHED) for each in complete]
                )
            # Remove them last: if the deadline interrupts this call, the repeated call must find
            # them again.
            self._remove(complete)
        return bool(complete)

    async def _fail(
        self,
        fiche_ids: Sequence[str],
        causes: Mapping[str, str | None],
        *,
        timed_out: bool = False,
    ) -> None:
        """The error of a recording takes precedence over the `causes` of whole attempts."""
        of_recordings = await self.read(why_untranscribed, fiche_ids)
        await self.record(
            [
                move_after_transcription(
                    each, of_recordings.get(each) or causes.get(each), timed_out=timed_out
                )
                for each in fiche_ids
            ]
        )
        self._remove(fiche_ids)

    def _remove(self, fiche_ids: Sequence[str]) -> None:
        removed = set(fiche_ids)
        self._left = [fiche_id for fiche_id in self._left if fiche_id not in removed]

    def _mark_complete(self, session: Session, complete: Sequence[str]) -> None:
        fence_attempt(session, self.ticket)
        now = self.context.clock.now()
        mark_transcribed(session, self.run_id, complete, now)
        is_line_due = now.timestamp() - self._logged_at >= LOG_EVERY_SECONDS
        if len(complete) == len(self._left) or is_line_due:
            self._logged_at = now.timestamp()
            session.flush()
            self._log_counts(session, "info", "progress: ")

    def _log_counts(self, session: Session, level: str, prefix: str) -> None:
        due = work_due(session, self.run_id)
        self.log(session, level, f"Transcription {prefix}{due.transcribed}/{due.fiches}")

    def _log_dispatch(
        self, session: Session, requests: Sequence[TranscriptionRunRequest], attempt: int
    ) -> None:
        keys = [request.run_id for request in requests]
        if attempt:
            message = f"Retrying transcriptions ({attempt}/{self.plan.retries})"
            self.log(session, "warning", message, {"count": len(keys), "keys": keys[:MAX_KEYS]})
            return
        log_fan_out(
            session,
            self.run_id,
            self.context.clock.now(),
            "fiche/transcribe",
            keys,
            waits_for="transcription gate (polling DB for has_transcription)",
        )
