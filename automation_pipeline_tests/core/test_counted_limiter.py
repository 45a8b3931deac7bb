"""Waits for a provider's turn are counted; what the limiter says is passed on as it is."""

import asyncio
from collections.abc import Callable

from automation_pipeline.core.coordination import CountedRateLimiter, Rate, reserve
from automation_pipeline.core.metrics import Meter
from automation_pipeline_tests.tables import every_case


class Limiter:
    def __init__(self, *waits: float | None) -> None:
        self.waits = list(waits)

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        return self.waits.pop(0)


def by_a_thread(limiter: CountedRateLimiter) -> float | None:
    return limiter.reserve("language-model", Rate(60, 60))


def by_a_task(limiter: CountedRateLimiter) -> float | None:
    return asyncio.run(reserve(limiter, "language-model", Rate(60, 60)))


@every_case("ask", [by_a_thread, by_a_task])
def test_waits_of_a_limiter_are_counted_by_provider_and_turns_at_once_are_none(
    ask: Callable[[CountedRateLimiter], float | None],
) -> None:
    meter = Meter()
    limiter = CountedRateLimiter(Limiter(0.0, 1.5, None, 0.5), meter)
    assert [ask(limiter) for _ in range(4)] == [0.0, 1.5, None, 0.5]
    assert meter.drain() == {
        ("limiter_waits_total", 'provider="language-model"'): 2,
        ("limiter_wait_seconds_total", 'provider="language-model"'): 2.0,
    }
