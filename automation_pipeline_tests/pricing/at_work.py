"""What happens to a run while its worker is in the middle of a write."""

import asyncio
from collections.abc import Callable

import pytest

from automation_pipeline.pricing import worker
from automation_pipeline_tests.pricing.bench import Bench
from automation_pipeline_tests.waiting import come_true


def during_first_write(bench: Bench, what: Callable[[], object]) -> None:
    """Once, in a thread of its own; the write waits for its end."""
    left = [what]

    async def meanwhile(kind: str, _subject: object) -> None:
        if kind == "write" and left:
            await asyncio.to_thread(left.pop())

    bench.shop._meanwhile = meanwhile


def until_unwanted(bench: Bench, what: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """In the middle of the first write, which goes on when the worker has seen that no more is
    wanted."""
    seen: list[bool] = []
    keep = worker.TargetWork.keep

    def watched(applying: worker.TargetWork) -> bool:
        seen.append(keep(applying))
        return seen[-1]

    left = [what]

    async def meanwhile(kind: str, _subject: object) -> None:
        if kind == "write" and left:
            await asyncio.to_thread(left.pop())
            # It looks for the second time when it knows what it saw the first time.
            await come_true(lambda: seen.count(False) > 1)

    patch.setattr(worker.TargetWork, "keep", watched)
    patch.setattr(worker, "LOOK_AGAIN_SECONDS", 0.02)
    bench.shop._meanwhile = meanwhile
