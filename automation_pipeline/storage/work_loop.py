"""The loop that a process does its async work in; what is counted meanwhile reaches the database."""

import asyncio
import gc
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cached_property
from typing import TypeVar

from automation_pipeline.core.tasks import end_tasks
from automation_pipeline.storage.metering import Metering

Result = TypeVar("Result")

THREADS = 64
# A transcript is thousands of objects: by Python's own measure it would be looked through several times.
OBJECTS_A_COLLECTION = 20_000


class WorkLoop:
    def __init__(self, metering: Metering) -> None:
        self._metering = metering

    @cached_property
    def _loop(self) -> asyncio.Runner:
        _spare_the_collector()
        runner = asyncio.Runner()
        # Threads mostly wait here, for the database or Redis: a few for each core would have them stand in line.
        runner.get_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="beside"))
        return runner

    def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Work in the caller's context: a runner left to itself stays in that of its first call."""
        whole = self.counted(work)
        try:
            return self._loop.run(whole, context=copy_context())
        except BaseException:  # an interrupt too must not leave tasks in the loop that the next call would wake
            end_tasks(self._loop.get_loop(), whole)
            raise

    async def counted(self, work: Coroutine[object, object, Result]) -> Result:
        async with self._metering.beside():
            return await work


def _spare_the_collector() -> None:
    """A process that works has loaded what it needs: all of that stays, and need not be looked at again."""
    gc.freeze()
    gc.set_threshold(OBJECTS_A_COLLECTION)
