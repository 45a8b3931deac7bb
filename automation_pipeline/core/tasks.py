"""Tasks that live and die together, with the first error as itself: a group of one is nobody's wish."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Coroutine
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


def end_tasks(loop: asyncio.AbstractEventLoop, whole: Coroutine[object, object, object]) -> None:
    """Of a loop that does not run: cancelled, and waited for. First the task of `whole`, which cancels those that it
    has begun: who is cancelled again while it tidies up stops at that, and httpx' connection stays taken for ever."""
    _end([task for task in asyncio.all_tasks(loop) if task.get_coro() is whole], loop)
    _end(asyncio.all_tasks(loop), loop)


def _end(tasks: Collection[asyncio.Task[object]], loop: asyncio.AbstractEventLoop) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
