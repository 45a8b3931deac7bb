"""Groups of tasks, bounded concurrency, and garbage collection."""

import asyncio
import gc
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Sequence,
)
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from threading import Thread
from typing import TypeVar, cast

from automation_pipeline.core.logs import log


@asynccontextmanager
async def together() -> AsyncGenerator[asyncio.TaskGroup]:
    """An `asyncio.TaskGroup` that raises the first error instead of a group of them."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        error = cast("BaseException", errors)
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        raise error from None


def end_tasks(loop: asyncio.AbstractEventLoop, main: Coroutine[object, object, object]) -> None:
    """Cancel the tasks of a loop that does not run, and wait for them. The task of `main` comes first
    and cancels those that it started. A task that is cancelled twice would abort its clean-up, and
    a connection of httpx would stay in use."""
    _end([task for task in asyncio.all_tasks(loop) if task.get_coro() is main], loop)
    _end(asyncio.all_tasks(loop), loop)


def _end(tasks: Collection[asyncio.Task[object]], loop: asyncio.AbstractEventLoop) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


Item = TypeVar("Item")
Result = TypeVar("Result")

FLUSH_EVERY_SECONDS = 0.5


async def process_concurrently(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[Result]],
    write: Callable[[Sequence[Result]], None],
    *,
    width: int,
    flush_every_seconds: float = FLUSH_EVERY_SECONDS,
) -> None:
    """Do `work` on every item, `width` at a time. At short intervals, `write` gets the new results
    in a thread.

    The first error of either ends the work. After an error of `work`, finished results are still
    written.
    """
    queue = iter(items)
    gathered: list[Result] = []

    async def worker() -> None:
        for item in queue:
            gathered.append(await work(item))  # noqa: PERF401  the workers share one iterator and one list

    async def flush() -> None:
        if gathered:
            batch = gathered.copy()
            gathered.clear()
            await asyncio.to_thread(write, batch)

    running = {asyncio.create_task(worker()) for _ in range(width)}
    try:
        while running:
            ended, running = await asyncio.wait(
                running, timeout=flush_every_seconds, return_when=asyncio.FIRST_EXCEPTION
            )
            await flush()
            for task in ended:
                task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class BackgroundWork:
    """Work that outlives the request that started it, at most `limit` tasks at the same time. A
    failure is logged with the message."""

    def __init__(self, limit: int, failure_message: str) -> None:
        self._limit, self._failure_message = limit, failure_message
        self._tasks: set[asyncio.Task[object]] = set()

    async def wait_for(self, work: Coroutine[object, object, object], seconds: float) -> None:
        """Start the work and wait up to `seconds` for it. It continues afterwards, and its errors
        do not reach the caller. At the limit, the work is not started."""
        if len(self._tasks) >= self._limit:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait({task}, timeout=seconds)

    async def end(self, seconds: float) -> None:
        """Wait up to `seconds` for the work, then cancel it. Another worker takes it over when its
        lease ends."""
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
            log(__name__).error(self._failure_message, exc_info=error)


async def in_thread(call: Callable[[], Result], seconds: float) -> Result:
    """Run a call that cannot be cancelled in a new thread. After a TimeoutError the call continues
    and may still take effect."""
    ended: Future[Result] = Future()

    def run() -> None:
        if not ended.set_running_or_notify_cancel():
            return
        try:
            ended.set_result(call())
        except BaseException as error:  # noqa: BLE001  raised in the waiting coroutine
            ended.set_exception(error)

    Thread(target=run, daemon=True).start()
    async with asyncio.timeout(seconds):
        return await asyncio.wrap_future(ended)


# A transcript has thousands of objects. Python's default would examine them several times.
OBJECTS_PER_COLLECTION = 20_000


@contextmanager
def gc_paused() -> Generator[None]:
    """Pauses garbage collection while modules load, because most of their objects stay. Exempts all
    objects that exist at the end. Does nothing if collection is off."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def tune_gc() -> None:
    """Exempt what is loaded from garbage collection and collect less often. It saves 3 % of a run's
    time (docs/decisions/0019)."""
    gc.freeze()
    gc.set_threshold(OBJECTS_PER_COLLECTION)
