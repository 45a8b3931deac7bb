"""Calls of a source: pace, daily quota, breaker, retries."""

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Literal

from automation_pipeline.core.clock import Clock
from automation_pipeline.enrichment.models import (
    RATE_LIMITED,
    REQUIRED_SOURCES,
    ErrorCode,
    SourceError,
    SourceOutcome,
    SourceRecord,
)
from automation_pipeline.enrichment.ports import Registries, RegistrySource
from automation_pipeline.enrichment.queries.sources import (
    SourceStatus,
    give_back_call,
    record_answer,
    record_failure,
    set_rest,
    source_statuses,
    take_call,
)
from automation_pipeline.enrichment.rules.evaluation import (
    is_down,
    is_silent,
    may_be_sent_again,
    rest_after,
)
from automation_pipeline.storage.database import Database

# A turn that is further away is not waited for.
MAX_TURN_SECONDS = 60.0


async def call_source(  # noqa: PLR0913  the collaborators by name
    source: RegistrySource,
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
        self,
        source: RegistrySource,
        registries: Registries,
        database: Database,
        clock: Clock,
        random: Random,
    ) -> None:
        self._source, self._registries, self._database = source, registries, database
        self._clock, self._random = clock, random
        self._call_of = clock.now().date()

    async def ask(self, siren: str, siret: str | None) -> SourceOutcome:
        """Where no further call may be made, what the last one came to counts. A required source
        that does not know the establishment is asked for the company itself, which then carries a
        warning."""
        knobs, began, calls = self._registries.knobs, time.monotonic(), 0
        said: SourceError | None = None
        warnings: tuple[str, ...] = ()
        while True:
            refusal = await self._wait_for_turn()
            if refusal is not None:
                # An earlier call of its own says more; when it may be made again, the rest that
                # others caused says.
                ended = refusal if said is None else replace(said, not_before=refusal.not_before)
                return self._outcome(ended, calls, began)
            heard = await self._fetch(siren, siret)
            if isinstance(heard, SourceError) and heard.is_ours:
                await asyncio.to_thread(self._give_back_call)
                return self._outcome(said or heard, calls, began)
            calls += 1
            if isinstance(heard, SourceRecord):
                await asyncio.to_thread(self._note_answer)
                return self._outcome(
                    replace(heard, warnings=(*heard.warnings, *warnings)), calls, began
                )
            said = heard
            if (
                siret
                and said.error_code is ErrorCode.NOT_FOUND
                and self._source.api in REQUIRED_SOURCES
            ):
                await asyncio.to_thread(self._note_answer)
                warnings, siret = (f"The register does not know the establishment {siret}.",), None
                continue
            may_go_on = may_be_sent_again(self._source.api, said, knobs.longest_retry_after_seconds)
            goes_on = may_go_on and calls <= knobs.max_retries
            rests_until = await asyncio.to_thread(self._note_error, said, goes_on=goes_on)
            if not goes_on:
                return self._outcome(replace(said, not_before=rests_until), calls, began)
            await asyncio.sleep(
                max(knobs.backoff.delay(calls, self._random), said.retry_after_seconds or 0.0)
            )

    async def _wait_for_turn(self) -> SourceError | None:
        """Why it is not called now. Else it is our turn, and one of the day's calls is ours:
        whoever waits looks again at its end, since others have heard more by then. A turn that
        comes while it rests is let go: else all whose turns came meanwhile would call at once."""
        while True:
            rests = await asyncio.to_thread(self._rests)
            if isinstance(rests, SourceError):
                return rests
            if rests > 0:
                await asyncio.sleep(rests)
                continue
            wait = await asyncio.to_thread(self._turn)
            if wait is None:
                until = self._clock.now() + timedelta(seconds=MAX_TURN_SECONDS)
                return _postponed(
                    f"The next free turn is more than {MAX_TURN_SECONDS:.0f} s away.", until
                )
            await asyncio.sleep(wait)
            taken = await asyncio.to_thread(self._take_call)
            if taken is not False:
                return taken

    async def _fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError:
        seconds = self._registries.knobs.call_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._source.registry.fetch(siren, siret)
        except TimeoutError:
            message = f"It did not answer within {seconds:g} s."
            return SourceError(error_code=ErrorCode.TIMEOUT, message=message, retryable=True)

    def _rests(self) -> SourceError | float:
        """How long it still rests, if that is short enough to be waited for."""
        with self._database.reading() as session:
            standing, now = source_statuses(session)[self._source.api], self._clock.now()
        return self._refusal(standing, now) or standing.rests_seconds(now)

    def _take_call(self) -> SourceError | Literal[False] | None:
        """None: it is ours. False: it has begun to rest for a short while."""
        now = self._clock.now()
        with self._database.transaction() as session:
            standing = source_statuses(session)[self._source.api]
            refusal = self._refusal(standing, now)
            if refusal is not None:
                return refusal
            if standing.is_resting(now):
                return False
            if not take_call(session, self._source.api, self._source.calls_a_day, now):
                midnight = datetime.combine(
                    now.date() + timedelta(days=1), datetime.min.time(), tzinfo=UTC
                )
                return _postponed(
                    f"Its {self._source.calls_a_day} calls of the day are used up.", midnight
                )
            self._call_of = now.date()
            return None

    def _give_back_call(self) -> None:
        with self._database.transaction() as session:
            give_back_call(session, self._source.api, self._call_of, self._clock.now())

    def _refusal(self, standing: SourceStatus, now: datetime) -> SourceError | None:
        if standing.rests_seconds(now) <= self._registries.knobs.longest_retry_after_seconds:
            return None
        reason = f"It rests until {standing.open_until:%H:%M} UTC: {standing.open_reason}"
        return _postponed(reason, standing.open_until)

    def _turn(self) -> float | None:
        key = f"enrichment:{self._source.api}"
        return self._registries.limiter.reserve(
            key, self._source.rate, max_wait_seconds=MAX_TURN_SECONDS
        )

    def _note_answer(self) -> None:
        with self._database.transaction() as session:
            record_answer(session, self._source.api, self._clock.now())

    def _note_error(self, said: SourceError, *, goes_on: bool) -> datetime | None:
        """Until when every caller leaves the source alone because of its 429."""
        api, now = self._source.api, self._clock.now()
        with self._database.transaction() as session:
            if not is_down(said) and not said.is_ours:
                record_answer(session, api, now)
            failures = (
                record_failure(session, api, now, is_silent=is_silent(said)) if is_down(said) else 0
            )
            length = rest_after(api, said, failures, goes_on=goes_on)
            if length is not None:
                set_rest(session, api, length, said.message, now)
        if said.error_code is not ErrorCode.RATE_LIMIT:
            return None
        self._registries.meter.count(RATE_LIMITED, source=api)
        return None if length is None else now + length

    def _outcome(
        self, said: SourceRecord | SourceError, attempts: int, began: float
    ) -> SourceOutcome:
        took = round((time.monotonic() - began) * 1000)
        if isinstance(said, SourceRecord):
            return SourceOutcome(
                source=self._source.api, duration_ms=took, attempts=attempts, record=said
            )
        return SourceOutcome(
            source=self._source.api, duration_ms=took, attempts=attempts, error=said
        )


def _postponed(message: str, until: datetime | None) -> SourceError:
    return SourceError(
        error_code=ErrorCode.RATE_LIMIT, message=message, retryable=True, not_before=until
    )
