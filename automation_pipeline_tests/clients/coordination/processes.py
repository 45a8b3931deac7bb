"""Work of the processes in the semaphore and rate limit tests."""

import asyncio
import time

from automation_pipeline.core.coordination import Rate
from automation_pipeline_tests.clients.coordination.semaphores import limiter_at, permits_at


def acquire_many(url: str, name: str, limit: int, times: int) -> int:
    """How many permits this process got."""

    async def acquire() -> int:
        with permits_at(url) as permits:
            got = [await permits.acquire(name, limit, "process", 30.0) for _ in range(times)]
        return len([permit for permit in got if permit is not None])

    return asyncio.run(acquire())


def reserve_many(url: str, key: str, rate: Rate, count: int) -> list[float]:
    """The reserved start times, accurate to the duration of one call."""
    instants: list[float] = []
    with limiter_at(url) as limiter:
        for _ in range(count):
            wait = limiter.reserve(key, rate)
            assert wait is not None
            instants.append(time.time() + wait)
    return instants
