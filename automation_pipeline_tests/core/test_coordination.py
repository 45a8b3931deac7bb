"""Semaphores, counted waits and failover from Redis to the database."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from automation_pipeline.core import coordination as semaphore_module
from automation_pipeline.core.coordination import (
    CountedRateLimiter,
    FailoverPermits,
    FailoverRateLimiter,
    Outage,
    Rate,
    Semaphore,
    rate_per_minute,
    reserve,
    wait_for_rate,
)
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.waiting import advance_time, run_with_fake_time, wait_until_async

UNAVAILABLE = TransientError("Redis does not answer.")


class Permits:
    """Permits in memory. Counts calls, and fails those in `failing`."""

    def __init__(self) -> None:
        self.held: set[object] = set()
        self.calls = Counter[str]()
        self.failing: set[str] = set()

    def record(self, call: str) -> None:
        self.calls[call] += 1
        if call in self.failing:
            raise UNAVAILABLE

    async def acquire(
        self, name: str, limit: int, owner: str, ttl_seconds: float
    ) -> "FakePermit | None":
        self.record("acquire")
        if len(self.held) >= limit:
            return None
        permit = FakePermit(self)
        self.held.add(permit)
        return permit


class FakePermit:
    def __init__(self, permits: Permits) -> None:
        self.permits = permits

    async def extend(self, ttl_seconds: float) -> None:
        self.permits.record("extend")

    async def release(self) -> None:
        self.permits.record("release")
        self.permits.held.discard(self)


@pytest.fixture
def permits() -> Permits:
    return Permits()


class ConcurrencyCounter:
    def __init__(self) -> None:
        self.inside = self.most = self.entered = 0

    @contextmanager
    def enter(self) -> Iterator[None]:
        self.inside += 1
        self.entered += 1
        self.most = max(self.most, self.inside)
        yield
        self.inside -= 1


async def work(
    semaphore: Semaphore, seconds: float = 0.0, counter: ConcurrencyCounter | None = None
) -> str:
    async with semaphore.acquire():
        with (counter or ConcurrencyCounter()).enter():
            await asyncio.sleep(seconds)
        return "result"


def test_all_tasks_run_and_never_exceed_the_semaphore_limit(permits: Permits) -> None:
    counter, semaphore = ConcurrencyCounter(), Semaphore(permits, "crm", 3, "me")

    async def use_semaphore() -> None:
        await asyncio.gather(*(work(semaphore, 0.001, counter) for _ in range(12)))

    for _ in range(2):  # each time in a new event loop
        asyncio.run(use_semaphore())
    assert (counter.most, counter.entered, permits.held) == (3, 24, set())
    assert permits.calls["acquire"] == 6, "tasks of one process hand permits over"


def test_tasks_that_end_together_hand_one_permit_to_one_waiting_task(permits: Permits) -> None:
    semaphore = Semaphore(permits, "crm", 2, "me")

    async def end_together() -> None:
        end = asyncio.Event()

        async def hold() -> None:
            async with semaphore.acquire():
                await end.wait()

        tasks = [asyncio.create_task(hold()) for _ in range(2)]
        await wait_until_async(lambda: len(permits.held) == 2)
        tasks.append(asyncio.create_task(work(semaphore, 0)))
        await asyncio.sleep(0)
        end.set()
        await asyncio.gather(*tasks)

    asyncio.run(end_together())
    assert permits.held == set()


def test_a_busy_process_yields_permits_to_another_process(
    permits: Permits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semaphore_module, "HAND_OVER_SECONDS", 0.02)
    monkeypatch.setattr(semaphore_module, "LONGEST_PAUSE_SECONDS", 0.002)
    busy_semaphore, other = (
        Semaphore(permits, "crm", 1, owner, poll_seconds=0.001) for owner in ("me", "other")
    )

    async def both() -> None:
        async def keep_busy() -> None:
            while True:
                await work(busy_semaphore, 0.002)

        busy = [asyncio.create_task(keep_busy()) for _ in range(3)]
        await asyncio.wait_for(work(other), 60)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    asyncio.run(both())
    assert permits.held == set()


def test_a_permit_handed_to_a_cancelled_task_is_released(permits: Permits) -> None:
    semaphore = Semaphore(permits, "crm", 1, "me")

    async def cancel() -> None:
        async with semaphore.acquire():
            waiting = asyncio.create_task(work(semaphore))
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert permits.held == set()
        await work(semaphore)
        assert permits.calls["acquire"] == 2, "a released permit is not used again"

    asyncio.run(cancel())
    assert permits.held == set()


@pytest.mark.parametrize("error", [LookupError, TimeoutError, asyncio.CancelledError])
def test_an_error_in_the_body_releases_the_permit(
    permits: Permits, error: type[BaseException]
) -> None:
    async def fail() -> None:
        async with Semaphore(permits, "crm", 1, "me").acquire():
            raise error

    with pytest.raises(error):
        asyncio.run(fail())
    assert permits.held == set()


def test_a_held_permit_is_extended_and_survives_an_outage(permits: Permits) -> None:
    async def hold_through_outage() -> str:
        async with Semaphore(permits, "crm", 1, "me", ttl_seconds=60).acquire():
            for beats in range(1, 9):
                advance_time(15)
                await wait_until_async(lambda beats=beats: permits.calls["extend"] == beats)
                permits.failing = {"extend", "release"} if beats > 3 else set()
            return "result"

    assert run_with_fake_time(hold_through_outage()) == "result"
    permits.failing.clear()


def test_polling_for_a_permit_backs_off_with_one_call_per_round(
    permits: Permits, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 6:
            permits.held.clear()

    monkeypatch.setattr(semaphore_module, "uniform", lambda _low, _high: 1.0)
    semaphore = Semaphore(permits, "model", 50, "me")
    permits.held = {FakePermit(permits) for _ in range(50)}
    monkeypatch.setattr(semaphore_module.asyncio, "sleep", sleep)
    asyncio.run(semaphore._wait())
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert permits.calls["acquire"] == 7


class FixedLimiter:
    def __init__(self, *waits: float | None) -> None:
        self.waits = list(waits)

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        return self.waits.pop(0)


def count_in_thread(limiter: CountedRateLimiter) -> float | None:
    return limiter.reserve("language-model", Rate(60, 60))


def count_in_task(limiter: CountedRateLimiter) -> float | None:
    return asyncio.run(reserve(limiter, "language-model", Rate(60, 60)))


@every_case("reserve_one", [count_in_thread, count_in_task])
def test_rate_limit_waits_are_counted_per_provider(
    reserve_one: Callable[[CountedRateLimiter], float | None],
) -> None:
    meter = Meter()
    limiter = CountedRateLimiter(FixedLimiter(0.0, 1.5, None, 0.5), meter)
    assert [reserve_one(limiter) for _ in range(4)] == [0.0, 1.5, None, 0.5]
    assert meter.drain() == {
        ("limiter_waits_total", 'provider="language-model"'): 2,
        ("limiter_wait_seconds_total", 'provider="language-model"'): 2.0,
    }


def test_a_call_waits_until_its_reserved_start(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(semaphore_module.asyncio, "sleep", sleep)
    limiter = FixedLimiter(0.0, 1.5, None)
    for _ in range(3):
        asyncio.run(wait_for_rate(limiter, "language-model", Rate(60, 60)))
    assert pauses == [0.0, 1.5, 0.0]


def test_a_rate_spaces_its_starts_and_must_be_positive() -> None:
    assert [Rate(6, 60.0).interval_seconds, Rate(6, 60.0, burst=5).interval_seconds] == [10, 30]
    assert rate_per_minute(10) == Rate(10, 60.6)
    for limit, period, burst in (
        (0, 60.0, 1),
        (1, 0.0, 1),
        (1, -1.0, 1),
        (2, 60.0, 0),
        (2, 60.0, 3),
    ):
        with pytest.raises(ValueError, match="Not a rate"):
            Rate(limit, period, burst)


RATE = Rate(60, 60)


class Limiter:
    def __init__(self, wait: float) -> None:
        self.wait, self.calls, self.is_out = wait, 0, False

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        self.calls += 1
        if self.is_out:
            raise TransientError("Redis does not answer.")
        return self.wait


def in_thread(limiter: FailoverRateLimiter) -> float | None:
    return limiter.reserve("k", RATE)


def in_task(limiter: FailoverRateLimiter) -> float | None:
    return asyncio.run(reserve(limiter, "k", RATE))


@every_case("reserve_one", [in_thread, in_task])
def test_the_second_limiter_is_used_only_during_an_outage_of_the_first(
    reserve_one: Callable[[FailoverRateLimiter], float | None],
) -> None:
    now = [100.0]
    first, second = Limiter(1.0), Limiter(2.0)
    limiter = FailoverRateLimiter(first, second, Outage(15, lambda: now[0]))
    assert reserve_one(limiter) == 1.0
    first.is_out = True
    assert [reserve_one(limiter) for _ in range(3)] == [2.0, 2.0, 2.0]
    assert first.calls == 2, "no calls during the outage"
    first.is_out = False
    now[0] += 15
    assert reserve_one(limiter) == 1.0
    assert second.calls == 3


def test_permits_come_from_the_second_store_during_an_outage_of_the_first() -> None:
    now = [100.0]
    first, second = FakePermits(), FakePermits()
    permits = FailoverPermits(first, second, Outage(15, lambda: now[0]))

    async def use() -> None:
        held = await permits.acquire("model", 1, "me", 30.0)
        assert held is not None
        first.is_out = True
        await held.extend(30.0)
        for _ in range(3):
            permit = await permits.acquire("model", 1, "me", 30.0)
            assert permit is not None
            await permit.release()
        await held.release()
        assert (first.calls, second.calls) == (["acquire", "extend"], ["acquire", "release"] * 3)
        first.is_out = False
        now[0] += 15
        assert await permits.acquire("model", 1, "me", 30.0)
        assert first.calls == ["acquire", "extend", "acquire"]

    asyncio.run(use())


class FakePermits:
    """A permit store whose permits are itself."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_out = False

    def record(self, call: str) -> None:
        self.calls.append(call)
        if self.is_out:
            raise TransientError("Redis does not answer.")

    async def acquire(self, name: str, limit: int, owner: str, ttl_seconds: float) -> "FakePermits":
        self.record("acquire")
        return self

    async def extend(self, ttl_seconds: float) -> None:
        self.record("extend")

    async def release(self) -> None:
        self.record("release")
