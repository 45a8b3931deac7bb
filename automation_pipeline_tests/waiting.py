"""Functions that wait for a condition with a deadline, and an event loop whose clock a test advances."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

_POLL_SECONDS = 0.01
# Long enough for a busy machine; a test that passes does not wait for it.
_TIMEOUT_SECONDS = 60.0


def wait_until(
    condition: Callable[[], bool],
    seconds: float = _TIMEOUT_SECONDS,
    *,
    every: float = _POLL_SECONDS,
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"Not within {seconds} s: {condition}"
        pause(every)


async def wait_until_async(
    condition: Callable[[], bool], seconds: float = _TIMEOUT_SECONDS
) -> None:
    """`wait_until` for tasks of an event loop. `advance_time` does not shorten the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"Not within {seconds} s: {condition}"
        await asyncio.sleep(_POLL_SECONDS)


def pause(seconds: float) -> None:
    """Let other processes run. Wait for events with `wait_until` instead."""
    threading.Event().wait(seconds)


class _FakeTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.advanced_seconds = 0.0

    def time(self) -> float:
        return super().time() + self.advanced_seconds


def run_with_fake_time(
    work: Coroutine[object, object, Result], *, threads: int | None = None
) -> Result:
    """`asyncio.run` with a loop whose time `advance_time` moves.

    With `threads=1`, calls of `asyncio.to_thread` finish in the order in which they began. A test
    that awaits such a call knows that all earlier ones have returned.
    """
    with asyncio.Runner(loop_factory=_FakeTimeLoop) as runner:
        if threads:
            runner.get_loop().set_default_executor(ThreadPoolExecutor(threads))
        return runner.run(work)


def advance_time(seconds: float) -> None:
    """Move the clock of the running loop, for all its sleeps and deadlines. The clocks of databases
    do not move."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _FakeTimeLoop)
    loop.advanced_seconds += seconds
