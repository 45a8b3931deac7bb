"""The one place where a test waits: for a condition, with a deadline; or not at all, where time can
be made to pass."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

_LOOK_EVERY_SECONDS = 0.01
# What comes at once costs nothing, and a busy machine is given all the time it needs.
_PATIENCE_SECONDS = 60.0


def wait_until(
    condition: Callable[[], bool],
    seconds: float = _PATIENCE_SECONDS,
    *,
    every: float = _LOOK_EVERY_SECONDS,
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"Not within {seconds} s: {condition}"
        pause(every)


async def come_true(condition: Callable[[], bool], seconds: float = _PATIENCE_SECONDS) -> None:
    """`wait_until` beside other tasks, by the machine's clock: a `leap` does not shorten it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"Not within {seconds} s: {condition}"
        await asyncio.sleep(_LOOK_EVERY_SECONDS)


def pause(seconds: float) -> None:
    """For loops that give way to other processes, not for hoping that something has happened
    meanwhile."""
    threading.Event().wait(seconds)


class _LeapingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.leapt = 0.0

    def time(self) -> float:
        return super().time() + self.leapt


def run(work: Coroutine[object, object, Result], *, threads: int | None = None) -> Result:
    """`asyncio.run`, within which time can `leap`. With one thread, who comes back from it knows
    that whoever went there before has come back too, and sleeps by now if that is what it does
    next."""
    with asyncio.Runner(loop_factory=_LeapingLoop) as runner:
        if threads:
            runner.get_loop().set_default_executor(ThreadPoolExecutor(threads))
        return runner.run(work)


def leap(seconds: float) -> None:
    """So much time passes now, for every sleep and every deadline of this loop; the databases'
    clocks do not move."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _LeapingLoop)
    loop.leapt += seconds
