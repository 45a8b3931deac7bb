"""Enrichments that the API begins itself, each in a task that outlives the request. What it leaves, Dagster does."""

import asyncio
from collections.abc import Coroutine

from automation_pipeline.core.logs import log

# More at once are left to Dagster altogether.
AT_MOST = 20

_log = log(__name__)


class Attempts:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    async def wait_for(self, work: Coroutine[object, object, object], seconds: float) -> None:
        """Begin the work and wait so long for it. It goes on afterwards; it never fails whoever waits."""
        if len(self._tasks) >= AT_MOST:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait({task}, timeout=seconds)

    async def end(self, seconds: float) -> None:
        """At shutdown: what takes longer is broken off. Its lease ends, and somebody else takes it over."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        left = tuple(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("An enrichment that the API began has failed; Dagster goes on with it", exc_info=error)
