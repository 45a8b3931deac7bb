"""Tasks that live and die together, with the first error as itself: a group of one is nobody's wish."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast


@asynccontextmanager
async def together() -> AsyncGenerator[asyncio.TaskGroup]:
    """An `asyncio.TaskGroup` that raises the first error instead of a group of them."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise _first(cast("BaseException", errors)) from None


def end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Of a loop that does not run: cancelled, and waited for."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
