"""Calls of a source: retries, rests, the rate limit and the daily quota."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from types import SimpleNamespace

import pytest

from automation_pipeline.enrichment import sources
from automation_pipeline.enrichment.models import (
    RATE_LIMITED,
    Registries,
    SourceApi,
    SourceError,
    SourceOutcome,
    SourceStatus,
)
from automation_pipeline.enrichment.sources import (
    call_source,
    record_failure,
    set_rest,
    source_statuses,
)
from automation_pipeline.storage import rate_limits
from automation_pipeline.storage.rate_limits import DatabaseRateLimiter
from automation_pipeline_tests.enrichment.harness import RATE, EnrichmentHarness
from automation_pipeline_tests.enrichment.scripted import (
    BUSY,
    DOWN,
    INPI,
    RCS,
    SEARCH,
    SILENT,
    SIREN,
    UNKNOWN,
    CountingLimiter,
    source_error,
    source_record,
)
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.waiting import run_with_fake_time

LONG_WAIT = source_error("RATE_LIMIT", 429, after=6.0)
NO_RETRY_AFTER = source_error("RATE_LIMIT", 429)
UNREACHABLE = source_error("SOURCE_UNAVAILABLE")
REFUSED = source_error("AUTH_ERROR", 401)
LOCAL_REFUSAL = replace(NO_RETRY_AFTER, http_status=None, is_local=True)


class NoJitter(Random):
    """Draws the middle of each range."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


async def call_async(
    harness: EnrichmentHarness, source: SourceApi, registries: Registries | None = None
) -> SourceOutcome:
    registries = registries or harness.registries
    services = {
        "registries": registries,
        "database": harness.database,
        "clock": harness.clock,
        "random": NoJitter(),
    }
    return await call_source(registries.sources[source], SIREN, None, **services)


def call(harness: EnrichmentHarness, source: SourceApi = RCS) -> SourceOutcome:
    return run_with_fake_time(call_async(harness, source))


def status_of(harness: EnrichmentHarness, source: SourceApi = RCS) -> SourceStatus:
    with harness.database.reading() as session:
        return source_statuses(session)[source]


@pytest.mark.parametrize("error", [SILENT, DOWN, UNREACHABLE], ids=lambda one: one.error_code)
def test_a_temporary_error_is_retried_after_250_and_500_ms(
    harness: EnrichmentHarness, waits: list[float], error: SourceError
) -> None:
    harness.script(rcs=error)
    outcome = call(harness)
    assert (outcome.error, outcome.attempts, waits) == (error, 3, [0.25, 0.5])


@pytest.mark.parametrize("source", list(SourceApi))
def test_retries_end_with_the_first_answer(
    harness: EnrichmentHarness, waits: list[float], source: SourceApi
) -> None:
    harness.sources[source].script = [DOWN, source_record(source)]
    outcome = call(harness, source)
    assert (outcome.status, outcome.attempts, waits) == ("SUCCESS", 2, [0.25])


def test_only_the_required_source_is_called_again_without_an_unknown_establishment(
    harness: EnrichmentHarness,
) -> None:
    siret = f"{SIREN}99999"
    with harness.database.transaction() as session:
        record_failure(session, SEARCH, harness.clock.now(), is_silent=True)
    registries = harness.registries
    services = {"registries": registries, "database": harness.database, "clock": harness.clock}
    outcomes = {}
    for api in (SEARCH, RCS):
        harness.sources[api].script = [UNKNOWN]
        outcomes[api] = run_with_fake_time(
            call_source(registries.sources[api], SIREN, siret, **services)
        )
    assert harness.sources[SEARCH].calls == [(SIREN, siret), (SIREN, None)]
    assert outcomes[SEARCH].record.warnings == (
        f"The register does not know the establishment {siret}.",
    )
    assert (outcomes[SEARCH].attempts, status_of(harness, SEARCH).failures) == (2, 0)
    assert (outcomes[RCS].error, harness.sources[RCS].calls) == (UNKNOWN, [(SIREN, siret)])


def test_retry_delays_have_twenty_percent_jitter_and_a_cap(
    harness: EnrichmentHarness, waits: list[float]
) -> None:
    harness.script(rcs=DOWN)
    registries = harness.registries
    for seed in range(3):
        drawn = {"database": harness.database, "clock": harness.clock, "random": Random(seed)}
        run_with_fake_time(
            call_source(registries.sources[RCS], SIREN, None, registries=registries, **drawn)
        )
    assert all(0.2 <= wait <= 0.3 for wait in waits[::2])
    assert all(0.4 <= wait <= 0.5 for wait in waits[1::2])


@pytest.mark.parametrize(
    "error",
    [UNKNOWN, REFUSED, source_error("FORBIDDEN", 403), source_error("INTERNAL_ERROR", 400)],
    ids=lambda one: one.error_code,
)
def test_a_permanent_source_error_is_not_retried(
    harness: EnrichmentHarness, waits: list[float], error: SourceError
) -> None:
    harness.script(rcs=error)
    assert (call(harness).error, len(harness.sources[RCS].calls), waits) == (error, 1, [])


@pytest.mark.parametrize(
    ("source", "error", "calls", "waited"),
    [
        (RCS, BUSY, 3, [2.0, 2.0]),
        (RCS, source_error("RATE_LIMIT", 429, after=5.0), 3, [5.0, 5.0]),
        (RCS, LONG_WAIT, 1, []),
        (RCS, NO_RETRY_AFTER, 3, [0.25, 0.5]),
        (SEARCH, BUSY, 3, [2.0, 2.0]),
        (INPI, BUSY, 1, []),
        (RCS, source_error("UPSTREAM_5XX", 503, after=3.0), 3, [3.0, 3.0]),
        (RCS, source_error("UPSTREAM_5XX", 503, after=30.0), 1, []),
    ],
)
def test_a_short_retry_after_is_waited_for_and_a_long_one_is_not(
    harness: EnrichmentHarness,
    waits: list[float],
    source: SourceApi,
    error: SourceError,
    calls: int,
    waited: list[float],
) -> None:
    harness.sources[source].always = error
    outcome = call(harness, source)
    assert (outcome.error, outcome.attempts, waits) == (error, calls, waited)


@pytest.mark.parametrize(
    ("source", "error", "minutes"),
    [(RCS, NO_RETRY_AFTER, 1), (SEARCH, BUSY, 1), (INPI, BUSY, 10), (RCS, REFUSED, 60)],
)
def test_a_resting_source_is_not_called_until_its_rest_ends(
    harness: EnrichmentHarness, source: SourceApi, error: SourceError, minutes: int
) -> None:
    harness.sources[source].always = error
    call(harness, source)
    calls_before = len(harness.sources[source].calls)
    until = status_of(harness, source).open_until
    assert until == harness.clock.now() + timedelta(minutes=minutes)
    refused = call(harness, source)
    assert refused.error is not None
    assert (refused.error.error_code, refused.error.http_status, refused.attempts) == (
        "RATE_LIMIT",
        None,
        0,
    )
    assert f"It rests until {until:%H:%M} UTC" in refused.error.message
    assert len(harness.sources[source].calls) == calls_before
    harness.clock.advance(timedelta(minutes=minutes))
    harness.sources[source].always = source_record(source)
    assert call(harness, source).status == "SUCCESS"


def test_a_call_waits_for_the_end_of_a_short_rest(
    harness: EnrichmentHarness, waits: list[float]
) -> None:
    with harness.database.transaction() as session:
        set_rest(session, RCS, timedelta(seconds=60), "It is busy.", harness.clock.now())
    harness.advance(seconds=54)
    assert call(harness).attempts == 0
    harness.advance(seconds=3)
    assert (call(harness).status, waits) == ("SUCCESS", [3.0])


def test_a_refused_call_returns_the_result_of_the_last_one(harness: EnrichmentHarness) -> None:
    def another_call_is_rate_limited() -> None:
        harness.sources[RCS].script.insert(0, LONG_WAIT)
        call(harness)

    harness.script(rcs=[another_call_is_rate_limited, DOWN])
    outcome = call(harness)
    assert (outcome.error, outcome.attempts) == (DOWN, 1)


@pytest.mark.parametrize(
    ("source", "length"), [(RCS, timedelta(hours=12)), (SEARCH, timedelta(minutes=1))]
)
def test_a_source_rests_after_ten_consecutive_timeouts(
    harness: EnrichmentHarness, source: SourceApi, length: timedelta
) -> None:
    harness.sources[source].always = SILENT
    for _ in range(3):
        call(harness, source)
    assert status_of(harness, source).failures == 9
    outcome = call(harness, source)
    assert (outcome.error, outcome.attempts) == (SILENT, 1)
    assert (
        status_of(harness, source).open_until
        == harness.clock.now() - timedelta(seconds=0.25) + length
    )
    harness.advance(seconds=length.total_seconds())
    harness.sources[source].always = source_record(source)
    assert call(harness, source).status == "SUCCESS"


@pytest.mark.parametrize("answer", [source_record(RCS), UNKNOWN])
def test_any_answer_resets_the_failure_count(harness: EnrichmentHarness, answer: object) -> None:
    harness.script(rcs=SILENT)
    call(harness)
    harness.script(rcs=answer)
    call(harness)
    assert status_of(harness).failures == 0


def test_the_daily_quota_is_enforced_and_resets_at_midnight(
    harness: EnrichmentHarness,
) -> None:
    harness.calls_a_day = {RCS: 2}
    outcomes = [call(harness) for _ in range(3)]
    assert [one.status for one in outcomes] == ["SUCCESS", "SUCCESS", "FAILED"]
    assert outcomes[2].error is not None
    assert outcomes[2].error.message == "Its 2 calls of the day are used up."
    assert len(harness.sources[RCS].calls) == 2
    harness.advance(hours=14)
    assert call(harness).status == "SUCCESS"


def test_failed_calls_count_towards_the_daily_quota(harness: EnrichmentHarness) -> None:
    harness.calls_a_day = {RCS: 2}
    harness.script(rcs=DOWN)
    outcome = call(harness)
    assert (outcome.error, outcome.attempts, len(harness.sources[RCS].calls)) == (DOWN, 2, 2)
    assert status_of(harness).quota_used == 2


def test_a_locally_refused_call_affects_neither_quota_nor_failure_count(
    harness: EnrichmentHarness, waits: list[float]
) -> None:
    harness.calls_a_day = {INPI: 1}
    harness.script(inpi=SILENT)
    call(harness, INPI)
    harness.advance(days=1)
    before = status_of(harness, INPI)
    harness.script(inpi=LOCAL_REFUSAL)
    waits.clear()
    for _ in range(12):
        outcome = call(harness, INPI)
        assert (outcome.error, outcome.attempts) == (LOCAL_REFUSAL, 0)
    after = status_of(harness, INPI)
    assert (after.failures, after.open_until, after.quota_used) == (before.failures, None, 0)
    assert (waits, harness.meter.drain()) == ([], {})
    harness.script(inpi=source_record(INPI))
    assert call(harness, INPI).status == "SUCCESS"


def test_a_local_refusal_returns_the_result_of_the_last_call(harness: EnrichmentHarness) -> None:
    harness.script(inpi=[DOWN, LOCAL_REFUSAL])
    outcome = call(harness, INPI)
    assert (outcome.error, outcome.attempts, status_of(harness, INPI).quota_used) == (DOWN, 1, 1)


def test_a_call_is_refused_if_the_rate_limit_wait_is_too_long(harness: EnrichmentHarness) -> None:
    harness.calls_a_day = {RCS: 5}
    harness.limiter.reserve = lambda *_given, **_more: None
    outcome = call(harness)
    assert outcome.error is not None
    assert (outcome.error.error_code, outcome.attempts, harness.sources[RCS].calls) == (
        "RATE_LIMIT",
        0,
        [],
    )
    assert status_of(harness).quota_used == 0


def test_a_call_without_an_answer_in_time_is_a_timeout(
    harness: EnrichmentHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_given: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(sources.asyncio, "timeout", lambda _seconds: asyncio.timeout(0))
    harness.sources[RCS].fetch = never
    outcome = call(harness)
    assert outcome.error is not None
    assert (outcome.error.error_code, outcome.error.http_status, outcome.attempts) == (
        "TIMEOUT",
        None,
        3,
    )
    assert outcome.error.message == "It did not answer within 600 s."


def test_rate_limited_answers_are_counted_in_the_metrics(harness: EnrichmentHarness) -> None:
    harness.script(rcs=BUSY)
    call(harness)
    assert {name: amount for (name, _), amount in harness.meter.drain().items()} == {
        RATE_LIMITED: 3
    }


def test_concurrent_calls_respect_the_rate_limit_of_the_source(
    harness: EnrichmentHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits take no real time: each task adds up the seconds that it would have waited."""
    harness.limiter, starts = CountingLimiter(harness.clock, is_enforced=True), []
    waited: Counter[object] = Counter()

    async def sleep(seconds: float) -> None:
        waited[asyncio.current_task()] += seconds
        await asyncio.sleep(0)

    async def fetch(*_given: object) -> object:
        starts.append(waited[asyncio.current_task()])
        return source_record(RCS)

    async def all_at_once() -> None:
        await asyncio.gather(*[call_async(harness, RCS, registries) for _ in range(12)])

    harness.sources[RCS].fetch = fetch
    registries = harness.registries
    monkeypatch.setattr(sources.asyncio, "sleep", sleep)
    run_with_fake_time(all_at_once())
    assert len(starts) == harness.limiter.reserved[f"enrichment:{RCS}"] == 12
    starts.sort()
    assert all(
        later - first >= RATE.period_seconds - 1e-6
        for first, later in zip(starts, starts[RATE.limit :], strict=False)
    )


class SleepingTasks:
    """Advances the clock to the next wake-up once all tasks sleep."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self._number = clock, 0
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        wake_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._number += 1
        self._sleepers.append(
            (self._clock.now() + timedelta(seconds=seconds), self._number, wake_up)
        )
        await wake_up

    async def run_to_completion(self, tasks: list[asyncio.Task[object]]) -> None:
        while unfinished := sum(not task.done() for task in tasks):
            if len(self._sleepers) < unfinished:
                await asyncio.sleep(0)
                continue
            first = min(self._sleepers)
            self._sleepers.remove(first)
            self._clock.advance(max(first[0] - self._clock.now(), timedelta(0)))
            first[2].set_result(None)


@pytest.fixture
def sleepers(
    clock: FakeClock, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> SleepingTasks:
    """Replaces the fixture `waits`, and makes the rate limits use the test's clock."""

    async def run_inline(work: Callable[..., object], *given: object, **more: object) -> object:
        return work(*given, **more)

    sleepers = SleepingTasks(clock)
    fake_asyncio = SimpleNamespace(
        sleep=sleepers.sleep, to_thread=run_inline, timeout=asyncio.timeout
    )
    monkeypatch.setattr(sources, "asyncio", fake_asyncio)
    monkeypatch.setattr(rate_limits, "_reserving", rate_limits._reserving.__wrapped__)
    monkeypatch.setattr(
        rate_limits, "epoch_sql", lambda **_: f"CAST({clock.now().timestamp()} AS FLOAT)"
    )
    return sleepers


@pytest.mark.parametrize("given", [[BUSY], [source_record(RCS)] * 3 + [BUSY] * 2])
def test_each_call_reserves_the_rate_limit_again_after_a_rest(
    harness: EnrichmentHarness, sleepers: SleepingTasks, given: list[object]
) -> None:
    harness.limiter, starts = DatabaseRateLimiter(harness.database), []
    script = list(given)

    async def fetch(*_given: object) -> object:
        starts.append(harness.clock.now())
        return script.pop(0) if script else source_record(RCS)

    async def all_at_once() -> list[object]:
        registries, services = (
            harness.registries,
            {"database": harness.database, "clock": harness.clock},
        )
        calls = [
            call_source(registries.sources[RCS], SIREN, None, registries=registries, **services)
            for _ in range(16)
        ]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await sleepers.run_to_completion(tasks)
        return [task.result().status for task in tasks]

    harness.sources[RCS].fetch = fetch
    assert run_with_fake_time(all_at_once()) == ["SUCCESS"] * 16
    distances = [
        (later - first).total_seconds()
        for first, later in zip(starts, starts[RATE.limit :], strict=False)
    ]
    assert min(distances) >= RATE.period_seconds - 0.001
    assert len(starts) == 16 + sum(one is BUSY for one in given) == calls_of_the_day(harness, RCS)


def calls_of_the_day(harness: EnrichmentHarness, source: SourceApi) -> int:
    with harness.database.reading() as session:
        return source_statuses(session)[source].quota_used


CONFLICT = source_error("SOURCE_UNAVAILABLE", 409)
NOT_CALLED = replace(source_error("RATE_LIMIT"), is_local=True)


@pytest.mark.parametrize(
    ("given", "hours"),
    [
        ([CONFLICT] * 12, None),
        ([DOWN] * 9 + [SILENT] * 3, None),
        ([SILENT] * 9 + [CONFLICT] + [SILENT] * 2, None),
        ([SILENT] * 9 + [DOWN] * 3, None),
        ([DOWN] * 3 + [SILENT] * 10, 12),
        ([SILENT] * 9 + [NOT_CALLED] + [SILENT], 12),
    ],
)
def test_only_ten_consecutive_timeouts_make_a_source_rest_for_twelve_hours(
    harness: EnrichmentHarness, given: list[object], hours: int | None
) -> None:
    source = harness.registries.sources[RCS]
    services = {
        "registries": harness.registries,
        "database": harness.database,
        "clock": harness.clock,
    }
    harness.sources[RCS].script = list(given)
    for _ in given:
        run_with_fake_time(call_source(source, SIREN, None, **services))
    with harness.database.reading() as session:
        until = source_statuses(session)[RCS].open_until
    left = None if until is None else round((until - harness.clock.now()) / timedelta(hours=1))
    assert left == hours
