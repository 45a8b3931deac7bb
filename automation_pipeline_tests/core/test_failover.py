"""Failover of the rate limiter: the second is asked while the first is out, and the first again after a while."""

import asyncio
from collections.abc import Callable

from automation_pipeline.core.coordination import Rate, reserve
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.failover import FailoverPermits, FailoverRateLimiter, Outage
from automation_pipeline_tests.tables import every_case

RATE = Rate(60, 60)


class Limiter:
    def __init__(self, wait: float) -> None:
        self.wait, self.asked, self.out = wait, 0, False

    def reserve(self, key: str, rate: Rate, *, max_wait_seconds: float | None = None) -> float | None:
        self.asked += 1
        if self.out:
            raise TransientError("Redis does not answer.")
        return self.wait


def by_a_thread(limiter: FailoverRateLimiter) -> float | None:
    return limiter.reserve("k", RATE)


def by_a_task(limiter: FailoverRateLimiter) -> float | None:
    return asyncio.run(reserve(limiter, "k", RATE))


@every_case("ask", [by_a_thread, by_a_task])
def test_the_second_is_asked_only_while_the_first_is_out(ask: Callable[[FailoverRateLimiter], float | None]) -> None:
    now = [100.0]
    first, second = Limiter(1.0), Limiter(2.0)
    limiter = FailoverRateLimiter(first, second, Outage(15, lambda: now[0]))
    assert ask(limiter) == 1.0
    first.out = True
    assert [ask(limiter) for _ in range(3)] == [2.0, 2.0, 2.0]
    assert first.asked == 2, "an outage is not asked about again and again"
    first.out = False
    now[0] += 15
    assert ask(limiter) == 1.0
    assert second.asked == 3


def test_permits_come_from_the_second_while_the_first_is_out() -> None:
    now = [100.0]
    first, second = Places("first"), Places("second")
    permits = FailoverPermits(first, second, Outage(15, lambda: now[0]))

    async def acquire() -> str:
        return str(await permits.acquire("model", 1, "me", 30.0))

    assert asyncio.run(acquire()) == "first"
    first.out = True
    assert [asyncio.run(acquire()) for _ in range(3)] == ["second"] * 3
    assert first.asked == 2
    first.out = False
    now[0] += 15
    assert asyncio.run(acquire()) == "first"


class Places:
    def __init__(self, name: str) -> None:
        self.name, self.asked, self.out = name, 0, False

    async def acquire(self, name: str, limit: int, owner: str, ttl_seconds: float) -> str:  # type: ignore[override]
        self.asked += 1
        if self.out:
            raise TransientError("Redis does not answer.")
        return self.name
