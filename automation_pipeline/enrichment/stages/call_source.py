"""Ask one source about one company: in its turn, within its day's calls, unless it rests; again where that can help."""

import asyncio
import time
from random import Random

from automation_pipeline.core.clock import Clock
from automation_pipeline.enrichment.domain.breaker import is_down, may_be_sent_again, rest_after
from automation_pipeline.enrichment.domain.measures import RATE_LIMITED
from automation_pipeline.enrichment.domain.record import SourceError, SourceOutcome, SourceRecord
from automation_pipeline.enrichment.domain.vocabulary import ErrorCode
from automation_pipeline.enrichment.ports import Registries, Source
from automation_pipeline.enrichment.store.sources import note_answer, note_failure, rest, standings, take_call
from automation_pipeline.storage.database import Database

# A turn that is further away is not waited for.
LONGEST_TURN_SECONDS = 60.0


async def call_source(  # noqa: PLR0913  the collaborators by name
    source: Source,
    siren: str,
    siret: str | None,
    *,
    registries: Registries,
    database: Database,
    clock: Clock,
    random: Random | None = None,
) -> SourceOutcome:
    """What it came to, after its retries; never an exception for what the source does."""
    caller = _Caller(source, registries, database, clock, random or Random())
    return await caller.ask(siren, siret)


class _Caller:
    def __init__(
        self, source: Source, registries: Registries, database: Database, clock: Clock, random: Random
    ) -> None:
        self._source, self._registries, self._database = source, registries, database
        self._clock, self._random = clock, random

    async def ask(self, siren: str, siret: str | None) -> SourceOutcome:
        knobs, began, attempt = self._registries.knobs, time.monotonic(), 0
        while True:
            attempt += 1
            said = await self._one_call(siren, siret)
            if isinstance(said, SourceRecord) or attempt > knobs.max_retries:
                return self._outcome(said, attempt, began)
            if not may_be_sent_again(self._source.api, said, knobs.longest_retry_after_seconds):
                return self._outcome(said, attempt, began)
            wait = max(knobs.backoff.delay(attempt, self._random), said.retry_after_seconds or 0.0)
            await asyncio.sleep(wait)

    async def _one_call(self, siren: str, siret: str | None) -> SourceRecord | SourceError:
        refusal = await asyncio.to_thread(self._refusal)
        if refusal is not None:
            return refusal
        wait = await asyncio.to_thread(self._turn)
        if wait is None:
            return _not_now(f"It is called by so many that a turn is {LONGEST_TURN_SECONDS:.0f} s away.", None)
        await asyncio.sleep(wait)
        try:
            async with asyncio.timeout(self._registries.knobs.call_seconds):
                said = await self._source.registry.fetch(siren, siret)
        except TimeoutError:
            seconds = self._registries.knobs.call_seconds
            said = SourceError(
                error_code=ErrorCode.TIMEOUT, message=f"It did not answer within {seconds:g} s.", retryable=True
            )
        await asyncio.to_thread(self._note, said)
        return said

    def _refusal(self) -> SourceError | None:
        """Why it is not called now; else one of the day's calls is ours."""
        now = self._clock.now()
        with self._database.transaction() as session:
            standing = standings(session)[self._source.api]
            if standing.is_resting(now):
                return _not_now(f"It rests until {standing.open_until:%H:%M} UTC: {standing.open_reason}", None)
            if not take_call(session, self._source.api, self._source.calls_a_day, now):
                return _not_now(f"Its {self._source.calls_a_day} calls of the day are used up.", None)
            return None

    def _turn(self) -> float | None:
        key = f"enrichment:{self._source.api}"
        return self._registries.limiter.reserve(key, self._source.rate, max_wait_seconds=LONGEST_TURN_SECONDS)

    def _note(self, said: SourceRecord | SourceError) -> None:
        api, now = self._source.api, self._clock.now()
        with self._database.transaction() as session:
            if isinstance(said, SourceRecord) or not (is_down(said) or _closes(said)):
                note_answer(session, api, now)
                return
            failures = note_failure(session, api, now) if is_down(said) else 0
            length = rest_after(api, said, failures)
            if length is not None:
                rest(session, api, length, said.message, now)
        if said.error_code is ErrorCode.RATE_LIMIT:
            self._registries.meter.count(RATE_LIMITED, source=api)

    def _outcome(self, said: SourceRecord | SourceError, attempts: int, began: float) -> SourceOutcome:
        took = round((time.monotonic() - began) * 1000)
        if isinstance(said, SourceRecord):
            return SourceOutcome(source=self._source.api, duration_ms=took, attempts=attempts, record=said)
        return SourceOutcome(source=self._source.api, duration_ms=took, attempts=attempts, error=said)


def _closes(error: SourceError) -> bool:
    return error.error_code in {ErrorCode.RATE_LIMIT, ErrorCode.AUTH_ERROR}


def _not_now(message: str, http_status: int | None) -> SourceError:
    return SourceError(error_code=ErrorCode.RATE_LIMIT, http_status=http_status, message=message, retryable=True)
