"""Write what must not get lost because the database is away for a moment, or busy."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.logs import log

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0

Result = TypeVar("Result")

_log = log(__name__)


async def keep_trying(write: Callable[[], Result], *, seconds: float) -> Result:
    """In a thread, once and then for so long. What failed may have been done all the same: it is safe to repeat."""
    clock = asyncio.get_running_loop().time
    until, wait = clock() + seconds, FIRST_WAIT_SECONDS
    while True:
        try:
            return await asyncio.to_thread(write)
        except TransientError as error:
            if clock() + wait > until:
                raise
            _log.warning("What came of a job could not be written, which is tried again: %s", error)
        await asyncio.sleep(wait)
        wait = min(wait * 2, LONGEST_WAIT_SECONDS)
