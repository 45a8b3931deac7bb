"""The one loop that waits between attempts. Whether another attempt can help is the error's verdict."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.retry import Backoff

Result = TypeVar("Result")


@dataclass(frozen=True)
class Retrying:
    """At most `attempts` calls. The larger of the provider's Retry-After and the back-off is waited for; a Retry-After
    that is longer than `longest_wait_seconds` is not: the error goes up at once and carries it."""

    attempts: int
    backoff: Backoff
    longest_wait_seconds: float = 60.0
    random: Random = field(default_factory=Random)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def call(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        for failures in range(1, self.attempts):
            try:
                return await attempt()
            except TransientError as error:
                asked = error.retry_after_seconds
                if asked is not None and asked > self.longest_wait_seconds:
                    raise
                wait = min(self.backoff.wait(failures, asked, self.random), self.longest_wait_seconds)
                await self.sleep(wait)
        return await attempt()
