"""Failover of the rate limiter: the second is asked while the first is out, and the first again
after a while."""

import asyncio
from collections.abc import Callable

from automation_pipeline.core.coordination import (
    FailoverPermits,
    FailoverRateLimiter,
    Outage,
    Rate,
    reserve,
)
from automation_pipeline.core.errors import TransientError
from automation_pipeline_tests.tables import every_case

RATE = Rate(60, 60)


class Limiter:
    def __init__(self, wait: float) -> None:
        self.wait, self.asked, self.out = wait, 0, False

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        self.asked += 1
        if self.out:
            raise TransientError("Redis does not answer.")
        return self.wait


def by_a_thread(limiter: FailoverRateLimiter) -> float | None:
    return limiter.reserve("k", RATE)


def by_a_task(limiter: FailoverRateLimiter) -> float | None:
    return asyncio.run(reserve(limiter, "k", RATE))


@every_case("ask", [by_a_thread, by_a_task])
def test_the_second_is_asked_only_while_the_first_is_out(
    ask: Callable[[FailoverRateLimiter], float | None],
) -> None:
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
    first, second = Places(), Places()
    permits = FailoverPermits(first, second, Outage(15, lambda: now[0]))

    async def use() -> None:
        held = await permits.acquire("model", 1, "me", 30.0)
        assert held is not None
        first.out = True
        await held.extend(30.0)
        for _ in range(3):
            permit = await permits.acquire("model", 1, "me", 30.0)
            assert permit is not None
            await permit.release()
        await held.release()
        assert (first.asked, second.asked) == (["acquire", "extend"], ["acquire", "release"] * 3)
        first.out = False
        now[0] += 15
        assert await permits.acquire("model", 1, "me", 30.0)
        assert first.asked == ["acquire", "extend", "acquire"]

    asyncio.run(use())


class Places:
    """Permits, and a permit."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.out = False

    def note(self, call: str) -> None:
        self.asked.append(call)
        if self.out:
            raise TransientError("Redis does not answer.")

    async def acquire(self, name: str, limit: int, owner: str, ttl_seconds: float) -> "Places":
        self.note("acquire")
        return self

    async def extend(self, ttl_seconds: float) -> None:
        self.note("extend")

    async def release(self) -> None:
        self.note("release")
