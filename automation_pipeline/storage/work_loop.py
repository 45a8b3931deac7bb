"""The loop that a process does its async work in; what is counted meanwhile reaches the database."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cached_property
from typing import TypeVar

from automation_pipeline.core.garbage import settle_for_work
from automation_pipeline.core.tasks import end_tasks
from automation_pipeline.storage.metering import Metering

Result = TypeVar("Result")

THREADS = 64


class WorkLoop:
    def __init__(self, metering: Metering) -> None:
        self._metering = metering

    @cached_property
    def _loop(self) -> asyncio.Runner:
        settle_for_work()
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
