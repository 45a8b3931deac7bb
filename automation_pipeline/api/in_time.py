"""Async work that a caller waits for, in a loop of its thread's own: the server goes on answering others meanwhile."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from automation_pipeline.bootstrap import Services

Result = TypeVar("Result")


def done_in_time(work: Coroutine[object, object, Result], services: Services) -> Result:
    """TimeoutError, a 504 to the caller, when it takes longer than any answer may; it is broken off then."""
    return asyncio.run(_in_time(services.counted(work), services.settings.api_timeout_seconds))


async def _in_time(work: Coroutine[object, object, Result], seconds: float) -> Result:
    async with asyncio.timeout(seconds):
        return await work
