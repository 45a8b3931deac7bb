"""The `core.coordination.RateLimiter` contract on both databases and on Redis, across processes.

The tests inspect reserved start times. They do not wait for them.
"""

import asyncio
import time
import uuid
from collections.abc import Iterator
from itertools import chain

import pytest

from automation_pipeline.core.coordination import Rate, RateLimiter, reserve
from automation_pipeline_tests.clients.coordination.processes import reserve_many
from automation_pipeline_tests.clients.coordination.semaphores import (
    backend_url,
    limiter_at,
    on_every_backend,
)
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes
from automation_pipeline_tests.waiting import wait_until

pytestmark = on_every_backend

SLOW = Rate(limit=1, period_seconds=200.0)
# The longest duration of a call on a busy machine, far below the intervals in these tests.
LATE = 20.0


@pytest.fixture
def url(database_kind: str, request: pytest.FixtureRequest) -> str:
    return backend_url(database_kind, request)


@pytest.fixture
def limiter(url: str) -> Iterator[RateLimiter]:
    with limiter_at(url) as limiter:
        yield limiter


@pytest.fixture
def key() -> str:
    return f"provider:{uuid.uuid4()}"


def reserved(limiter: RateLimiter, key: str, rate: Rate) -> float:
    wait = limiter.reserve(key, rate)
    assert wait is not None
    return wait


def near(*seconds: float) -> list[object]:
    """Waits shorten by the time between two calls."""
    return [pytest.approx(second - LATE / 2, abs=LATE / 2 + 0.001) for second in seconds]


def test_the_first_reservation_is_immediate_and_the_next_are_evenly_spaced(
    limiter: RateLimiter, key: str
) -> None:
    assert reserved(limiter, key, SLOW) == 0
    assert [reserved(limiter, key, SLOW) for _ in range(3)] == near(200, 400, 600)


def test_a_burst_starts_immediately_and_later_calls_are_spaced_evenly(
    limiter: RateLimiter, key: str
) -> None:
    rate = Rate(limit=5, period_seconds=600.0, burst=3)
    assert [reserved(limiter, key, rate) for _ in range(3)] == [0, 0, 0]
    assert [reserved(limiter, key, rate) for _ in range(3)] == near(200, 400, 600)


def test_a_wait_above_the_maximum_is_refused_and_reserves_nothing(
    limiter: RateLimiter, key: str
) -> None:
    reserved(limiter, key, SLOW)
    for _ in range(3):
        assert limiter.reserve(key, SLOW, max_wait_seconds=50.0) is None
    assert limiter.reserve(key, SLOW, max_wait_seconds=0.0) is None
    assert [limiter.reserve(key, SLOW, max_wait_seconds=200.0)] == near(200)
    assert limiter.reserve(key, SLOW, max_wait_seconds=200.0) is None
    assert [reserved(limiter, key, SLOW)] == near(400)


def test_an_idle_limiter_grants_a_call_with_no_wait_allowed(limiter: RateLimiter, key: str) -> None:
    assert limiter.reserve(key, SLOW, max_wait_seconds=0.0) == 0


def test_keys_are_limited_independently(limiter: RateLimiter, key: str) -> None:
    assert reserved(limiter, key, SLOW) == 0
    assert reserved(limiter, f"{key}:other", SLOW) == 0


@pytest.mark.parametrize("burst", [1, 2])
def test_idle_time_accumulates_no_more_than_one_burst(
    limiter: RateLimiter, key: str, burst: int
) -> None:
    rate, count = Rate(limit=burst, period_seconds=0.05, burst=burst), 20
    reserved(limiter, key, rate)
    advance_past(limiter, key, 6 * rate.interval_seconds)
    started = time.time()
    # The wait counts from the response: a computed start time can be late but never early.
    instants = [reserved(limiter, key, rate) + time.time() for _ in range(count)]
    assert instants[burst - 1] < started + LATE
    assert instants[-1] > started + (count - burst) * rate.interval_seconds - 0.001


def advance_past(limiter: RateLimiter, key: str, seconds: float) -> None:
    other = Rate(1, seconds)
    reserved(limiter, f"{key}:clock", other)
    wait_until(lambda: limiter.reserve(f"{key}:clock", other, max_wait_seconds=0.0) == 0)


def reserved_by_processes(url: str, key: str, rate: Rate, count: int) -> list[float]:
    calls = [(url, key, rate, count)] * PROCESS_COUNT
    return sorted(chain.from_iterable(run_in_processes(reserve_many, *calls)))


def test_processes_share_one_limit_without_unused_slots(url: str, key: str) -> None:
    """Every start time is one of the slots first, first + interval, ..., and each slot is used once."""
    rate, count = Rate(limit=1, period_seconds=200.0), 15
    instants = reserved_by_processes(url, key, rate, count)
    slots = [(instant - instants[0]) / rate.interval_seconds for instant in instants]
    assert [round(slot) for slot in slots] == list(range(PROCESS_COUNT * count))
    assert all(abs(slot - round(slot)) < LATE / rate.interval_seconds for slot in slots)


def test_concurrent_processes_stay_under_the_cap_in_any_window(url: str, key: str) -> None:
    rate = Rate(limit=10, period_seconds=1000.0, burst=4)
    instants = reserved_by_processes(url, key, rate, 15)
    window = rate.period_seconds - LATE
    most = max(sum(start <= instant < start + window for instant in instants) for start in instants)
    assert most == rate.limit


def test_tasks_and_threads_share_one_reservation_sequence(limiter: RateLimiter, key: str) -> None:
    async def ask() -> list[float | None]:
        return await asyncio.gather(*(reserve(limiter, key, SLOW) for _ in range(3)))

    assert reserved(limiter, key, SLOW) == 0
    waits = asyncio.run(ask())
    assert sorted(wait for wait in waits if wait is not None) == near(200, 400, 600)
    assert reserved(limiter, key, SLOW) == near(800)[0]
