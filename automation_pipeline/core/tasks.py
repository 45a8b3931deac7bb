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


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
