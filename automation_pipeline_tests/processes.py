"""Runs a function in several processes at the same time. The function must belong to an importable
module."""

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

PROCESS_COUNT = 4
_BARRIER_SECONDS = 120
_ROOT = str(Path(__file__).parents[1])
_barrier: Barrier | None = None


def run_in_processes(work: Callable[..., Result], *calls: Sequence[object]) -> list[Result]:
    """The results of `work` for the arguments of each call. Each call runs in its own process, and all
    calls begin together."""
    idle = PROCESS_COUNT - len(calls)
    assert idle >= 0
    futures = [_pool().submit(_wait_and_run, work, *call) for call in calls]
    fillers = [_pool().submit(_wait_and_run, _do_nothing) for _ in range(idle)]
    for filler in fillers:
        filler.result()
    return [future.result() for future in futures]


@cache
def _pool() -> ProcessPoolExecutor:
    if _ROOT not in sys.path:  # a spawned process finds this module through the path of its parent
        sys.path.append(_ROOT)
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        PROCESS_COUNT,
        mp_context=spawn,
        initializer=_set_barrier,
        initargs=(spawn.Barrier(PROCESS_COUNT),),
    )


def _set_barrier(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603  one per process
    _barrier = barrier


def _wait_and_run(work: Callable[..., Result], *arguments: object) -> Result:
    assert _barrier is not None
    _barrier.wait(_BARRIER_SECONDS)
    return work(*arguments)


def _do_nothing() -> None:
    return None
