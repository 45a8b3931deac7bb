"""Several real processes at once, started on the same mark. The work is a function of an importable
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

CREW = 4
_MARK_SECONDS = 120
_ROOT = str(Path(__file__).parents[1])
_mark: Barrier | None = None


def at_once(work: Callable[..., Result], *calls: Sequence[object]) -> list[Result]:
    """What `work` returned for each of the calls, every one run in a process of its own."""
    idle = CREW - len(calls)
    assert idle >= 0
    futures = [_crew().submit(_on_the_mark, work, *call) for call in calls]
    others = [_crew().submit(_on_the_mark, _nothing) for _ in range(idle)]
    for other in others:
        other.result()
    return [future.result() for future in futures]


@cache
def _crew() -> ProcessPoolExecutor:
    if _ROOT not in sys.path:  # a spawned process looks for this module where its parent would
        sys.path.append(_ROOT)
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        CREW, mp_context=spawn, initializer=_enlist, initargs=(spawn.Barrier(CREW),)
    )


def _enlist(mark: Barrier) -> None:
    global _mark  # noqa: PLW0603  a process has one
    _mark = mark


def _on_the_mark(work: Callable[..., Result], *arguments: object) -> Result:
    assert _mark is not None
    _mark.wait(_MARK_SECONDS)
    return work(*arguments)


def _nothing() -> None:
    return None
