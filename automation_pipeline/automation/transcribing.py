"""Transcribing the fiches of a batch."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.automation.events import run_note
from automation_pipeline.automation.models.runs import (
    FicheStage,
    LedgerMove,
    OutcomeStatus,
    Phase,
    RunAttempt,
)
from automation_pipeline.automation.ports import BatchContext
from automation_pipeline.automation.queries.fiches import (
    runs_over,
    untranscribed,
    why_untranscribed,
)
from automation_pipeline.automation.queries.ledger import (
    mark_transcribed,
    pending_fiches,
    record_moves,
)
from automation_pipeline.automation.queries.run_details import work_due
from automation_pipeline.automation.queries.runs import (
    RunPlan,
    enter_phase,
    fence_attempt,
    get_run,
    run_plan,
    seconds_since_start,
    write_log,
)
from automation_pipeline.automation.rules.outcomes import (
    move_after_transcription,
    transcription_key,
)
from automation_pipeline.automation.runs import record_progress
from automation_pipeline.core.background import together
from automation_pipeline.core.errors import AutomationError, InfrastructureError
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.workflow_logs import write_notes
from automation_pipeline.transcription.models import (
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionStatus,
)

FIRST_PAUSE_SECONDS = 0.2
POLL_RUNS_SECONDS = 1.0
LOG_EVERY_SECONDS = 10.0
MAX_KEYS = 5
FENCE_CHECK_SECONDS = 2.0
PROGRESS_SECONDS = 2.0


class BatchOutcomes:
    """Writes the outcomes of a batch's fiches into the ledger, and the run's progress with them.
    `ended` counts them by status."""

    def __init__(self, ticket: RunAttempt, phase: Phase, shop: BatchContext) -> None:
        self._ticket, self._phase, self._shop = ticket, phase, shop
        self.ended: Counter[str] = Counter()
        self._progress_at = 0.0

    async def record(self, moves: Sequence[LedgerMove]) -> None:
        move = RunMoves(self._ticket, moves, self._shop.clock.now())
        await self._shop.database.write_in_bulk(_record_moves, move)
        self.ended.update(move.status for move in moves)
        now = asyncio.get_running_loop().time()
        if now - self._progress_at >= PROGRESS_SECONDS:
            self._progress_at = now
            await asyncio.to_thread(self.record_progress)

    def record_progress(self, *, in_log: bool = False) -> None:
        now = self._shop.clock.now()
        with self._shop.database.transaction() as session:
            record_progress(session, self._ticket, now, in_log=in_log, step=self._phase)

    @asynccontextmanager
    async def fenced(self) -> AsyncGenerator[None]:
        """A newer attempt, or a cancelled run, stops the work at once."""
        async with together() as group:
            watch = group.create_task(self._watch_fence())
            yield
            watch.cancel()

    async def _watch_fence(self) -> None:
        while True:
            await asyncio.sleep(FENCE_CHECK_SECONDS)
            await asyncio.to_thread(self._check_fence)

    def _check_fence(self) -> None:
        with self._shop.database.transaction() as session:
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


async def transcribe_batch(ticket: RunAttempt, batch: int, *, shop: BatchContext) -> Counter[str]:
    """How many fiches ended how. Those that are to be audited stay pending; a fiche that cannot be
    transcribed has failed. Nothing is done where the schedule wants no transcription."""
    with shop.database.transaction() as session:
        tries = run_plan(session, ticket.run_id)
        targets = pending_fiches(session, ticket.run_id, batch, FicheStage.FETCHED)
        if not tries.schedule.run_transcription or not targets:
            return Counter()
        enter_phase(session, ticket, Phase.TRANSCRIBING)
        spent = seconds_since_start(session, ticket.run_id)
    outcomes = BatchOutcomes(ticket, Phase.TRANSCRIBING, shop)

    async def ready(fiche_ids: Sequence[str]) -> None:
        if not tries.schedule.run_audits:
            done = OutcomeStatus.SUCCESSFUL
            await outcomes.record(
                [LedgerMove(each, done, stage=FicheStage.FETCHED) for each in fiche_ids]
            )

    async def lost(given_up: Mapping[str, TranscriptionFailure]) -> None:
        await outcomes.record(
            [
                move_after_transcription(each, why.cause, timed_out=why.timed_out)
                for each, why in given_up.items()
            ]
        )

    until = asyncio.get_running_loop().time() + shop.knobs.transcription_seconds - spent
    async with outcomes.fenced():
        exits = TranscriptionCallbacks(ready, lost)
        await transcribe_targets(ticket, targets, tries=tries, shop=shop, until=until, exits=exits)
    await asyncio.to_thread(outcomes.record_progress)
    return outcomes.ended


@dataclass(frozen=True)
class TranscriptionFailure:
    """Why a fiche that still lacks transcripts is given up."""

    cause: str | None
    timed_out: bool = False


@dataclass(frozen=True)
class TranscriptionCallbacks:
    """Where fiches go: those with all transcripts, and those that are given up. A call that the
    time cuts short is repeated."""

    ready: Callable[[Sequence[str]], Awaitable[None]]
    lost: Callable[[Mapping[str, TranscriptionFailure]], Awaitable[None]]


@dataclass(frozen=True)
class _Try:
    """One attempt at a fiche: the run that it follows, or why there is none. `is_over`: that run
    had ended already."""

    number: int
    key: str
    run_id: str | None = None
    cause: str | None = None
    is_over: bool = False

    @property
    def has_joined(self) -> bool:
        return self.run_id is not None and self.run_id != self.key


def transcription_request(
    run_id: int, fiche_id: str, tries: RunPlan, attempt: int = 0
) -> TranscriptionRunRequest:
    return TranscriptionRunRequest(
        transcription_key(run_id, fiche_id, attempt),
        fiche_id,
        TranscriptionPriority(tries.schedule.transcription_priority),
        fresh_since=tries.since,
        renew_before=tries.renew_before,
    )


async def transcribe_targets(
    ticket: RunAttempt,
    fiche_ids: Sequence[str],
    *,
    tries: RunPlan,
    shop: BatchContext,
    until: float,
    exits: TranscriptionCallbacks,
) -> None:
    """Every fiche leaves by one of the exits as soon as its own attempts are over, and at `until`
    by the loop's clock at the latest. What is in flight elsewhere is joined. GroundError is no
    cause: the step tries again."""
    if fiche_ids:
        await _TranscriptionGate(ticket, list(fiche_ids), tries, shop, exits).run(until)


class _TranscriptionGate:
    def __init__(
        self,
        ticket: RunAttempt,
        left: list[str],
        tries: RunPlan,
        shop: BatchContext,
        exits: TranscriptionCallbacks,
    ) -> None:
        self._ticket, self._run_id, self._left = ticket, ticket.run_id, left
        self._tries, self._shop, self._exits = tries, shop, exits
        self._following: dict[str, _Try] = {}
        self._logged_at = 0.0

    async def run(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._look()
                await self._begin(dict.fromkeys(self._left, 0))
                await self._follow()
        except TimeoutError:
            await self._look()
            if self._left:
                await self._write(
                    lambda session: self._log_counts(
                        session, "warning", "timeout/stall - completed "
                    )
                )
                await self._lose(self._left, timed_out=True)
        except InfrastructureError:
            await self._look()
            raise
        await self._write(self._note_done)

    async def _follow(self) -> None:
        pause, looked_at = FIRST_PAUSE_SECONDS, 0.0
        loop = asyncio.get_running_loop()
        async with together() as group:
            work: asyncio.Task[None] | None = None
            while self._left:
                if work is None:
                    work = group.create_task(self._work())
                await asyncio.wait({work}, timeout=pause)
                is_look_due = work.done() or loop.time() - looked_at >= POLL_RUNS_SECONDS
                over = await asyncio.to_thread(self._over) if is_look_due else {}
                looked_at = loop.time() if is_look_due else looked_at
                came = await self._look()
                moved = await self._go_on(
                    {each: cause for each, cause in over.items() if each in self._left}
                )
                work = None if work.done() else work
                at_once = came or moved
                pause = (
                    FIRST_PAUSE_SECONDS
                    if at_once
                    else min(1.5 * pause, self._shop.knobs.longest_pause_seconds)
                )
            # The work is not cancelled: it claims no more, and calls for recordings of other
            # batches that are under way are paid for.

    async def _work(self) -> None:
        """For the runs that are followed. What cannot work at all is the cause of all of them."""
        followed = {
            each: one
            for each in self._left
            if (one := self._following[each]).run_id and not one.is_over
        }
        try:
            if followed:
                run_ids = [one.run_id for one in followed.values() if one.run_id]
                await self._shop.transcribe(
                    run_ids, [one.key for one in followed.values() if not one.has_joined]
                )
        except InfrastructureError:
            raise
        except AutomationError as error:
            for fiche_id, one in followed.items():
                self._following[fiche_id] = _Try(one.number, one.key, cause=str(error))

    def _over(self) -> dict[str, str | None]:
        """Fiches whose attempt has ended, with the cause as far as the run as a whole knows it."""
        tries = {fiche_id: self._following[fiche_id] for fiche_id in self._left}
        with self._shop.database.reading() as session:
            ended = runs_over(session, [one.run_id for one in tries.values() if one.run_id])
        return {
            fiche_id: one.cause or ended.get(one.run_id or "")
            for fiche_id, one in tries.items()
            if one.run_id is None or one.is_over or one.run_id in ended
        }

    async def _go_on(self, over: Mapping[str, str | None]) -> bool:
        """Each fiche whose attempt ended is tried again, or given up at once."""
        again, lost = dict[str, int](), list[str]()
        for fiche_id in over:
            one = self._following[fiche_id]
            if one.has_joined and self._tries.renew_before is not None:
                again[fiche_id] = (
                    one.number
                )  # the run of others may not have made the transcripts anew
            elif one.number < self._tries.retries:
                again[fiche_id] = one.number + 1
            else:
                lost.append(fiche_id)
        if lost:
            await self._lose(lost, causes=over)
        if again:
            await self._begin(again)
        return bool(again or lost)

    async def _begin(self, attempts: Mapping[str, int]) -> None:
        chosen = {each: number for each, number in attempts.items() if each in self._left}
        if not chosen:
            return
        requests = [
            transcription_request(self._run_id, fiche_id, self._tries, number)
            for fiche_id, number in chosen.items()
        ]
        await self._write(
            lambda session: self._log_dispatch(session, requests, max(chosen.values()))
        )
        try:
            started = await self._shop.begin_transcriptions(requests)
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

    async def _look(self) -> bool:
        """Whether fiches have become whole since the last look."""
        lacking = await asyncio.to_thread(self._untranscribed)
        whole = [fiche_id for fiche_id in self._left if not lacking.get(fiche_id, 1)]
        if whole:
            await self._write(lambda session: self._mark(session, whole))
            await self._exits.ready(whole)
            # Only now: a look that the time cuts short is taken again, and must find them.
            self._leave(whole)
        return bool(whole)

    async def _lose(
        self,
        fiche_ids: Sequence[str],
        *,
        causes: Mapping[str, str | None] | None = None,
        timed_out: bool = False,
    ) -> None:
        with_recordings = await asyncio.to_thread(self._why, fiche_ids)
        known = causes or {each: one.cause for each, one in self._following.items()}
        lost = {
            each: TranscriptionFailure(with_recordings.get(each) or known.get(each), timed_out)
            for each in fiche_ids
        }
        await self._exits.lost(lost)
        self._leave(fiche_ids)

    def _leave(self, fiche_ids: Sequence[str]) -> None:
        gone = set(fiche_ids)
        self._left = [fiche_id for fiche_id in self._left if fiche_id not in gone]

    def _untranscribed(self) -> dict[str, int]:
        with self._shop.database.reading() as session:
            return dict(untranscribed(session, self._left, self._tries.renew_before))

    def _why(self, fiche_ids: Sequence[str]) -> dict[str, str]:
        with self._shop.database.reading() as session:
            return why_untranscribed(session, fiche_ids)

    async def _write(self, write: Callable[[Session], None]) -> None:
        def act() -> None:
            with self._shop.database.transaction() as session:
                write(session)

        await asyncio.to_thread(act)

    def _mark(self, session: Session, whole: Sequence[str]) -> None:
        fence_attempt(session, self._ticket)
        mark_transcribed(session, self._run_id, whole, self._shop.clock.now())
        now = self._shop.clock.now().timestamp()
        if len(whole) == len(self._left) or now - self._logged_at >= LOG_EVERY_SECONDS:
            self._logged_at = now
            session.flush()
            self._log_counts(session, "info", "progress: ")

    def _log_counts(self, session: Session, level: str, words: str) -> None:
        due = work_due(session, self._run_id)
        message = f"Transcription {words}{due.transcribed}/{due.fiches}"
        write_log(session, self._run_id, self._shop.clock.now(), level, message)

    def _log_dispatch(
        self, session: Session, requests: Sequence[TranscriptionRunRequest], attempt: int
    ) -> None:
        retries = self._tries.retries
        words = (
            f"Retrying transcriptions ({attempt}/{retries})"
            if attempt
            else "Dispatched fiche/transcribe fan-out events"
        )
        details = {
            "count": len(requests),
            "keys": [request.run_id for request in requests[:MAX_KEYS]],
        }
        level = "warning" if attempt else "info"
        write_log(session, self._run_id, self._shop.clock.now(), level, words, details)
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
