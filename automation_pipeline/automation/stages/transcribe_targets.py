"""Have the fiches of a batch transcribed, and say of each when nothing is lacking any more."""

import asyncio
from collections.abc import Callable, Sequence

from automation_pipeline.automation.domain.run import RunTicket
from automation_pipeline.automation.domain.work import transcription_key
from automation_pipeline.automation.ports import Workshop
from automation_pipeline.automation.store.details import untranscribed, why_untranscribed
from automation_pipeline.automation.store.ledger import mark_transcribed
from automation_pipeline.automation.store.runs import Tries, hold_attempt, write_log
from automation_pipeline.core.errors import AutomationError, GroundError
from automation_pipeline.core.tasks import together
from automation_pipeline.transcription.domain.run import Priority
from automation_pipeline.transcription.stages.begin_transcription import Wish

FIRST_PAUSE_SECONDS = 0.2
LOG_EVERY_SECONDS = 10.0


async def transcribe_targets(
    ticket: RunTicket, fiche_ids: Sequence[str], *, tries: Tries, shop: Workshop, ready: Callable[[Sequence[str]], None]
) -> dict[str, str | None]:
    """The fiches that still lack transcripts when the time or the tries are over, with the cause. `ready` hears of the
    others as they become whole, wherever the work on them is done: what is in flight elsewhere is joined.
    GroundError is no cause: what lacks for it is left for another attempt of the step."""
    return await _Gate(ticket, list(fiche_ids), tries, shop, ready).run()


class _Gate:
    def __init__(
        self,
        ticket: RunTicket,
        left: list[str],
        tries: Tries,
        shop: Workshop,
        ready: Callable[[Sequence[str]], None],
    ) -> None:
        self._ticket, self._run_id, self._left = ticket, ticket.run_id, left
        self._tries, self._shop, self._ready = tries, shop, ready
        self._total, self._logged_at = len(left), 0.0
        self._error: AutomationError | None = None

    async def run(self) -> dict[str, str | None]:
        try:
            async with asyncio.timeout(self._shop.knobs.transcription_seconds):
                await self._look()
                for attempt in range(1 + self._tries.retries):
                    if self._left:
                        await self._attempt(attempt)
        except TimeoutError:
            await self._look()
        if self._left and isinstance(self._error, GroundError):
            raise self._error
        if self._left:
            done = self._total - len(self._left)
            await self._log("warning", f"Transcription timeout/stall - completed {done}/{self._total}")
        why, otherwise = await asyncio.to_thread(self._why), self._error and str(self._error)
        return {fiche_id: why.get(fiche_id, otherwise) for fiche_id in self._left}

    async def _attempt(self, attempt: int) -> None:
        keys = [transcription_key(self._run_id, fiche_id, attempt) for fiche_id in self._left]
        retries = self._tries.retries
        words = (
            f"Retrying transcriptions ({attempt}/{retries})"
            if attempt
            else "Dispatched fiche/transcribe fan-out events"
        )
        await self._log("warning" if attempt else "info", words, {"count": len(keys), "keys": keys[:5]})
        wishes = [self._wish(*pair) for pair in zip(keys, self._left, strict=True)]
        async with together() as group:
            work = group.create_task(self._work(wishes))
            pause = FIRST_PAUSE_SECONDS
            while not work.done():
                await asyncio.wait({work}, timeout=pause)
                came = await self._look()
                pause = FIRST_PAUSE_SECONDS if came else min(1.5 * pause, self._shop.knobs.longest_pause_seconds)
        await self._look()  # the work may have ended while the last look was taken

    def _wish(self, key: str, fiche_id: str) -> Wish:
        priority = Priority(self._tries.schedule.transcription_priority)
        return Wish(key, fiche_id, priority, fresh_since=self._tries.since, renew_before=self._tries.renew_before)

    async def _work(self, wishes: Sequence[Wish]) -> None:
        self._error = None
        try:
            await self._shop.transcribe(wishes)
        except AutomationError as error:
            self._error = error

    async def _look(self) -> int:
        """How many have become whole since the last look."""
        lacking = await asyncio.to_thread(self._untranscribed)
        whole = [fiche_id for fiche_id in self._left if not lacking.get(fiche_id, 1)]
        if whole:
            await asyncio.to_thread(self._mark, whole)
            gone = set(whole)  # only now: a look that the time cuts short is taken again, and must find them
            self._left = [fiche_id for fiche_id in self._left if fiche_id not in gone]
            self._ready(whole)
            await self._log_progress()
        return len(whole)

    def _untranscribed(self) -> dict[str, int]:
        with self._shop.database.reading() as session:
            return dict(untranscribed(session, self._left, self._tries.renew_before))

    def _mark(self, whole: Sequence[str]) -> None:
        with self._shop.database.transaction() as session:
            hold_attempt(session, self._ticket)
            mark_transcribed(session, self._run_id, whole, self._shop.clock.now())

    def _why(self) -> dict[str, str]:
        with self._shop.database.reading() as session:
            return why_untranscribed(session, self._left)

    async def _log_progress(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._left or now - self._logged_at >= LOG_EVERY_SECONDS:
            self._logged_at = now
            await self._log("info", f"Transcription progress: {self._total - len(self._left)}/{self._total}")

    async def _log(self, level: str, message: str, details: dict[str, object] | None = None) -> None:
        def write() -> None:
            with self._shop.database.transaction() as session:
                write_log(session, self._run_id, self._shop.clock.now(), level, message, details)

        await asyncio.to_thread(write)
