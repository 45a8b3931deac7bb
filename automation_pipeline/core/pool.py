"""Many small pieces of work at once, with a bound: always full until the last, results handed over while it runs."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

FLUSH_EVERY_SECONDS = 0.5


async def work_through(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[Result]],
    write: Callable[[Sequence[Result]], None],
    *,
    width: int,
    flush_every_seconds: float = FLUSH_EVERY_SECONDS,
) -> None:
    """Do `work` on every item, `width` at a time; `write` runs in a thread, each moment, on what has gathered since.

    The first error of either ends everything; what was finished before an error of `work` is still written.
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
