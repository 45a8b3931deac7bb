"""Calls of a source. All processes share its rate limit, its daily quota and its circuit breaker."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Literal

from sqlalchemy import case, or_, select, true, update
from sqlalchemy.orm import Session

from automation_pipeline.core.clock import Clock
from automation_pipeline.enrichment.models import (
    RATE_LIMITED,
    REQUIRED_SOURCES,
    ErrorCode,
    Registries,
    RegistrySource,
    SourceApi,
    SourceError,
    SourceOutcome,
    SourceRecord,
    SourceStatus,
)
from automation_pipeline.enrichment.rules.evaluation import (
    is_call_repeatable,
    is_down,
    is_silent,
    rest_after,
)
from automation_pipeline.enrichment.tables import SourceStatusRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import insert_into

# A job waits at most this long for the rate limit of a source.
MAX_WAIT_SECONDS = 60.0


async def call_source(  # noqa: PLR0913  collaborators, by name
    source: RegistrySource,
    siren: str,
    siret: str | None,
    *,
    registries: Registries,
    database: Database,
    clock: Clock,
    random: Random | None = None,
) -> SourceOutcome:
    """Call the source, with retries. Errors of the source are values, not exceptions."""
    return await _Caller(source, registries, database, clock, random or Random()).call(siren, siret)


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
        self._now, self._random = clock.now, random
        self._quota_day = clock.now().date()

    async def call(self, siren: str, siret: str | None) -> SourceOutcome:
        """Call until the source answers or the retries are over. If no further call is allowed, the
        last result counts. If a required source does not know the establishment, the next call asks
        for the company only, and the record has a warning."""
        options, started, calls = self._registries.options, time.monotonic(), 0
        last: SourceError | None = None
        warnings: tuple[str, ...] = ()

        def outcome(
            record: SourceRecord | None = None, error: SourceError | None = None
        ) -> SourceOutcome:
            duration_ms = round((time.monotonic() - started) * 1000)
            return SourceOutcome(
                source=self._source.api,
                duration_ms=duration_ms,
                attempts=calls,
                record=record,
                error=error,
            )

        while True:
            refusal = await self._wait_for_start()
            if refusal is not None:
                # An earlier result is more informative, but only the refusal has the time of the next
                # call.
                error = refusal if last is None else replace(last, not_before=refusal.not_before)
                return outcome(error=error)
            result = await self._fetch(siren, siret)
            if isinstance(result, SourceError) and result.is_local:
                await self._write(return_call, self._quota_day)
                return outcome(error=last or result)
            calls += 1
            if isinstance(result, SourceRecord):
                await self._write(record_answer)
                return outcome(replace(result, warnings=(*result.warnings, *warnings)))
            last = result
            is_unknown = last.error_code is ErrorCode.NOT_FOUND
            if siret and is_unknown and self._source.api in REQUIRED_SOURCES:
                await self._write(record_answer)
                warnings, siret = (f"The register does not know the establishment {siret}.",), None
                continue
            will_retry = calls <= options.max_retries and is_call_repeatable(
                self._source.api, last, options.longest_retry_after_seconds
            )
            not_before = await asyncio.to_thread(self._record_error, last, will_retry=will_retry)
            if not will_retry:
                return outcome(error=replace(last, not_before=not_before))
            delay = options.backoff.delay(calls, self._random)
            await asyncio.sleep(max(delay, last.retry_after_seconds or 0.0))

    async def _wait_for_start(self) -> SourceError | None:
        """Wait for the rest, the rate limit and the quota of the source. Return None when the call may
        start, or the reason why it may not.

        The state is read again after each wait, because other callers may have changed it. A caller
        that reserved a slot of the rate limit during a rest reserves another one: otherwise all
        waiting callers would call at once.
        """
        while True:
            statuses, now = (
                await asyncio.to_thread(self._database.read, source_statuses),
                self._now(),
            )
            status = statuses[self._source.api]
            refusal = self._refusal(status, now)
            if refusal is not None:
                return refusal
            if status.is_resting(now):
                await asyncio.sleep(status.rest_seconds(now))
                continue
            wait = await asyncio.to_thread(
                self._registries.limiter.reserve,
                f"enrichment:{self._source.api}",
                self._source.rate,
                max_wait_seconds=MAX_WAIT_SECONDS,
            )
            if wait is None:
                return _postponed(
                    f"Its rate limit has no free slot within {MAX_WAIT_SECONDS:.0f} s.",
                    self._now() + timedelta(seconds=MAX_WAIT_SECONDS),
                )
            await asyncio.sleep(wait)
            taken = await asyncio.to_thread(self._take_call)
            if taken is not False:
                return taken

    async def _fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError:
        seconds = self._registries.options.call_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._source.registry.fetch(siren, siret)
        except TimeoutError:
            message = f"It did not answer within {seconds:g} s."
            return SourceError(error_code=ErrorCode.TIMEOUT, message=message, retryable=True)

    def _take_call(self) -> SourceError | Literal[False] | None:
        """Take a call of the daily quota. Return None if the call may start, False if a short rest has
        started since the last read, and otherwise the reason for the refusal."""
        now = self._now()
        with self._database.transaction() as session:
            status = source_statuses(session)[self._source.api]
            refusal = self._refusal(status, now)
            if refusal is not None:
                return refusal
            if status.is_resting(now):
                return False
            if not take_call(session, self._source.api, self._source.calls_a_day, now):
                tomorrow = now.date() + timedelta(days=1)
                return _postponed(
                    f"Its {self._source.calls_a_day} calls of the day are used up.",
                    datetime.combine(tomorrow, datetime.min.time(), tzinfo=UTC),
                )
            self._quota_day = now.date()
            return None

    def _refusal(self, status: SourceStatus, now: datetime) -> SourceError | None:
        if status.rest_seconds(now) <= self._registries.options.longest_retry_after_seconds:
            return None
        reason = f"It rests until {status.open_until:%H:%M} UTC: {status.open_reason}"
        return _postponed(reason, status.open_until)

    async def _write(self, query: Callable[..., object], *arguments: object) -> None:
        def write() -> None:
            with self._database.transaction() as session:
                query(session, self._source.api, *arguments, self._now())

        await asyncio.to_thread(write)

    def _record_error(self, error: SourceError, *, will_retry: bool) -> datetime | None:
        """Update the state of the source. Return when callers may call it again after a 429."""
        api, now, failures = self._source.api, self._now(), 0
        with self._database.transaction() as session:
            if is_down(error):
                failures = record_failure(session, api, now, is_silent=is_silent(error))
            else:
                record_answer(session, api, now)
            length = rest_after(api, error, failures, will_retry=will_retry)
            if length is not None:
                set_rest(session, api, length, error.message, now)
        if error.error_code is not ErrorCode.RATE_LIMIT:
            return None
        self._registries.meter.count(RATE_LIMITED, source=api)
        return None if length is None else now + length


def _postponed(message: str, until: datetime | None) -> SourceError:
    return SourceError(
        error_code=ErrorCode.RATE_LIMIT, message=message, retryable=True, not_before=until
    )


def source_statuses(session: Session) -> dict[SourceApi, SourceStatus]:
    """Return the status of every source, including sources that were never called."""
    row = SourceStatusRow
    query = select(
        row.source_api, row.open_until, row.open_reason, row.failures, row.quota_on, row.quota_used
    )
    statuses = {source: SourceStatus(source) for source in SourceApi}
    for source, *state in session.execute(query):
        statuses[SourceApi(source)] = SourceStatus(SourceApi(source), *state)
    return statuses


def take_call(session: Session, source: SourceApi, calls_a_day: int | None, now: datetime) -> bool:
    """Count a call of the day (UTC). Return False if the quota is used up."""
    table, changes = SourceStatusRow, {"quota_on": now.date(), "updated_at": now}
    used = case((table.quota_on == now.date(), table.quota_used), else_=0)
    insert = insert_into(session, table).values(
        source_api=source, failures=0, quota_used=1, **changes
    )
    taken = session.scalar(
        insert.on_conflict_do_update(
            index_elements=["source_api"],
            set_={"quota_used": used + 1, **changes},
            where=true() if calls_a_day is None else used < calls_a_day,
        ).returning(table.source_api)
    )
    return taken is not None


def return_call(session: Session, source: SourceApi, day: date, now: datetime) -> None:
    """Return an unused call of that day to the quota."""
    session.execute(
        update(SourceStatusRow)
        .where(
            SourceStatusRow.source_api == source,
            SourceStatusRow.quota_on == day,
            SourceStatusRow.quota_used > 0,
        )
        .values(quota_used=SourceStatusRow.quota_used - 1, updated_at=now)
        .execution_options(synchronize_session=False)
    )


def record_answer(session: Session, source: SourceApi, now: datetime) -> None:
    """Reset the count of consecutive failures."""
    session.execute(
        update(SourceStatusRow)
        .where(SourceStatusRow.source_api == source, SourceStatusRow.failures > 0)
        .values(failures=0, updated_at=now)
        .execution_options(synchronize_session=False)
    )


def record_failure(session: Session, source: SourceApi, now: datetime, *, is_silent: bool) -> int:
    """Count a failure, and return the number of consecutive failures of its kind."""
    changes = {"is_silent": is_silent, "updated_at": now}
    insert = insert_into(session, SourceStatusRow).values(
        source_api=source, failures=1, quota_used=0, **changes
    )
    in_a_row = case((SourceStatusRow.is_silent == is_silent, SourceStatusRow.failures + 1), else_=1)
    counted = insert.on_conflict_do_update(
        index_elements=["source_api"], set_={"failures": in_a_row, **changes}
    ).returning(SourceStatusRow.failures)
    return session.scalars(counted).one()


def set_rest(
    session: Session, source: SourceApi, length: timedelta, reason: str, now: datetime
) -> None:
    """Prevent all calls of the source for this time. A stored rest that ends later stays."""
    until = now + length
    changes = {"open_until": until, "open_reason": reason, "failures": 0, "updated_at": now}
    insert = insert_into(session, SourceStatusRow).values(
        source_api=source, quota_used=0, **changes
    )
    ends_later = or_(SourceStatusRow.open_until.is_(None), SourceStatusRow.open_until < until)
    session.execute(
        insert.on_conflict_do_update(index_elements=["source_api"], set_=changes, where=ends_later)
    )


class DatabaseLoginTokens:
    """Stores the token of `SharedTokens` in the row of the source."""

    def __init__(self, database: Database, clock: Clock, source: SourceApi) -> None:
        self._database, self._clock, self._source = database, clock, source

    def current(self) -> str | None:
        row = SourceStatusRow
        query = select(row.token).where(
            row.source_api == self._source, row.token_until > self._clock.now()
        )
        with self._database.reading() as session:
            return session.scalar(query)

    def store(self, token: str, until: datetime) -> None:
        changes = {"token": token, "token_until": until, "updated_at": self._clock.now()}
        with self._database.transaction() as session:
            insert = insert_into(session, SourceStatusRow).values(
                source_api=self._source, failures=0, quota_used=0, **changes
            )
            session.execute(
                insert.on_conflict_do_update(index_elements=["source_api"], set_=changes)
            )

    def discard(self, token: str) -> None:
        with self._database.transaction() as session:
            session.execute(
                update(SourceStatusRow)
                .where(SourceStatusRow.source_api == self._source, SourceStatusRow.token == token)
                .values(token=None, token_until=None, updated_at=self._clock.now())
                .execution_options(synchronize_session=False)
            )
