"""Groups of tasks, bounded concurrency and garbage collection."""

import asyncio
import gc
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest

from automation_pipeline.core.background import (
    BackgroundWork,
    end_tasks,
    gc_paused,
    in_thread,
    process_concurrently,
    together,
    tune_gc,
)
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.e2e.system import REPOSITORY
from automation_pipeline_tests.waiting import wait_until

FLUSH_SECONDS = 0.01


class Workload:
    """Work that counts concurrent items, and a writer that records its batches."""

    def __init__(self, *, fails_at: int | None = None, write_fails: bool = False) -> None:
        self.fails_at, self.write_fails = fails_at, write_fails
        self.running = self.max_concurrent = 0
        self.first_started = asyncio.Event()
        self.started: list[int] = []
        self.writes: list[list[int]] = []

    @property
    def written(self) -> list[int]:
        return [result for batch in self.writes for result in batch]

    async def work(self, item: int) -> int:
        self.first_started.set()
        self.started.append(item)
        self.running += 1
        self.max_concurrent = max(self.max_concurrent, self.running)
        try:
            await self._work(item)
        finally:
            self.running -= 1
        return item

    async def _work(self, item: int) -> None:
        await asyncio.sleep(0.001 * (item % 3))
        if item == self.fails_at:
            raise ZeroDivisionError(item)

    def write(self, results: Sequence[int]) -> None:
        if self.write_fails:
            raise OSError("disk full")
        self.writes.append(list(results))


def run(
    workload: Workload, count: int, width: int, flush_every_seconds: float = FLUSH_SECONDS
) -> None:
    async def process() -> None:
        before = asyncio.all_tasks()
        try:
            await process_concurrently(
                range(count),
                workload.work,
                workload.write,
                width=width,
                flush_every_seconds=flush_every_seconds,
            )
        finally:
            assert asyncio.all_tasks() == before
            assert workload.running == 0

    asyncio.run(process())


@every_case("width", [1, 2, 7])
def test_the_concurrency_reaches_but_never_exceeds_the_width(width: int) -> None:
    workload = Workload()
    run(workload, 50, width)
    assert workload.max_concurrent == width


@every_case(("count", "width"), [(0, 3), (1, 5), (3, 5), (100, 7)])
def test_every_item_is_processed_and_written_exactly_once(count: int, width: int) -> None:
    workload = Workload()
    run(workload, count, width)
    assert sorted(workload.started) == list(range(count))
    assert sorted(workload.written) == list(range(count))


def test_a_slow_item_does_not_block_other_workers() -> None:
    """One item waits for all others, which would never finish if items ran batch by batch."""
    done: list[int] = []
    others_done = asyncio.Event()

    async def work(item: int) -> int:
        if item == 0:
            await others_done.wait()
        done.append(item)
        if len(done) == 30:
            others_done.set()
        return item

    asyncio.run(
        asyncio.wait_for(process_concurrently(range(31), work, lambda _: None, width=3), timeout=60)
    )
    assert done[-1] == 0


def test_results_are_written_during_the_work() -> None:
    written: list[int] = []

    async def both() -> None:
        first_is_written = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def work(item: int) -> int:
            if item == 1:
                await first_is_written.wait()
            return item

        def write(results: Sequence[int]) -> None:
            written.extend(results)
            loop.call_soon_threadsafe(first_is_written.set)

        await process_concurrently(
            range(2), work, write, width=1, flush_every_seconds=FLUSH_SECONDS
        )

    asyncio.run(asyncio.wait_for(both(), timeout=60))
    assert written == [0, 1]


def test_a_slow_writer_does_not_stop_the_work() -> None:
    done: list[int] = []
    seen_while_writing: list[int] = []

    async def work(item: int) -> int:
        await asyncio.sleep(0.002)
        done.append(item)
        return item

    def write(_results: Sequence[int]) -> None:
        before = len(done)
        if before < 50:
            wait_until(lambda: len(done) > before)
        seen_while_writing.append(len(done) - before)

    asyncio.run(
        process_concurrently(range(100), work, write, width=2, flush_every_seconds=FLUSH_SECONDS)
    )
    assert max(seen_while_writing) > 0


def test_finished_results_are_written_before_a_work_error_is_raised() -> None:
    workload = Workload(fails_at=20)
    with pytest.raises(ZeroDivisionError):
        run(workload, 1000, 3, flush_every_seconds=60.0)
    assert set(range(18)) <= set(workload.written)
    assert 20 not in workload.written
    assert len(workload.started) < 50


def test_a_write_error_is_raised_and_ends_the_work() -> None:
    workload = Workload(write_fails=True)
    with pytest.raises(OSError, match="disk full"):
        run(workload, 100_000, 3)
    assert len(workload.started) < 100_000


def test_cancellation_leaves_no_task_running() -> None:
    workload = Workload()

    async def cancelled() -> None:
        processing = asyncio.create_task(
            process_concurrently(range(100_000), workload.work, workload.write, width=3)
        )
        await workload.first_started.wait()
        processing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await processing
        assert workload.running == 0
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(cancelled())


def test_a_task_error_is_raised_unwrapped_and_cancels_the_other_tasks() -> None:
    ended: list[str] = []

    async def fail() -> None:
        raise LookupError("me")

    async def wait_forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("the other")

    async def both() -> None:
        async with together() as group:
            group.create_task(wait_forever())
            group.create_task(fail())

    with pytest.raises(LookupError, match="me"):
        asyncio.run(both())
    assert ended == ["the other"]


def test_an_error_of_the_block_is_raised_unwrapped() -> None:
    async def block() -> None:
        async with together():
            raise LookupError("block")

    with pytest.raises(LookupError, match="block"):
        asyncio.run(block())


def test_a_task_group_without_errors_finishes_all_tasks() -> None:
    done: list[int] = []

    async def record(number: int) -> None:
        done.append(number)

    async def work() -> None:
        async with together() as group:
            for number in range(3):
                group.create_task(record(number))

    asyncio.run(work())
    assert sorted(done) == [0, 1, 2]


def test_ending_the_tasks_of_a_loop_cancels_each_once_and_waits_for_its_clean_up() -> None:
    started, ended = asyncio.Event(), list[str]()

    async def child() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # a second cancellation would end the clean-up here
            ended.append("child")

    async def main() -> None:
        async with together() as group:
            group.create_task(child())

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("other")

    loop = asyncio.new_event_loop()
    whole = main()
    tasks = [loop.create_task(whole), loop.create_task(other())]
    loop.run_until_complete(started.wait())
    end_tasks(loop, whole)
    end_tasks(loop, whole)
    assert ended == ["child", "other"]
    assert [task.cancelled() for task in tasks] == [True, True]
    loop.close()


COLLECTION = """
import gc
from automation_pipeline.core.background import tune_gc

tune_gc()
print(gc.get_freeze_count(), gc.get_threshold()[0])
"""


def test_loaded_objects_are_exempt_from_garbage_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", COLLECTION], capture_output=True, text=True, check=True
    )
    frozen, threshold = map(int, ended.stdout.split())
    assert frozen > 1000
    assert threshold == 20_000
    called: list[object] = []
    monkeypatch.setattr(gc, "freeze", lambda: called.append("freeze"))
    monkeypatch.setattr(gc, "set_threshold", called.append)
    tune_gc()
    assert called == ["freeze", 20_000]


def test_garbage_collection_is_paused_only_if_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for name in ("disable", "enable", "freeze"):
        monkeypatch.setattr(gc, name, lambda name=name: called.append(name))
    with gc_paused():
        called.append("body")
    assert called == ["disable", "body", "freeze", "enable"]
    monkeypatch.setattr(gc, "isenabled", lambda: False)
    with gc_paused():
        called.append("body")
    assert called[4:] == ["body"]


def test_the_docker_image_limits_malloc_to_one_arena() -> None:
    dockerfile = (REPOSITORY / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^\s+MALLOC_ARENA_MAX=1\b", dockerfile, re.MULTILINE)


def test_a_call_in_a_thread_returns_raises_or_times_out() -> None:
    def fail() -> None:
        raise ValueError("Not this")

    released = threading.Event()
    assert asyncio.run(in_thread(lambda: 7, seconds=30)) == 7
    assert asyncio.run(in_thread(lambda: threading.current_thread().daemon, seconds=30)) is True
    with pytest.raises(ValueError, match="Not this"):
        asyncio.run(in_thread(fail, seconds=30))
    with pytest.raises(TimeoutError):
        asyncio.run(in_thread(released.wait, seconds=0.01))
    released.set()


LONG = 60.0


def background_work(most: int = 20) -> BackgroundWork:
    return BackgroundWork(most, "It has failed")


def test_work_within_the_wait_is_finished_when_it_returns() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("done")

    asyncio.run(background_work().wait_for(work(), LONG))
    assert done == ["done"]


def test_work_beyond_the_wait_continues_until_shutdown() -> None:
    done: list[str] = []

    async def shut_down() -> None:
        background, gate = background_work(), asyncio.Event()

        async def work() -> None:
            await gate.wait()
            done.append("done")

        await background.wait_for(work(), 0)
        assert done == []
        gate.set()
        await background.end(LONG)

    asyncio.run(shut_down())
    assert done == ["done"]


def test_work_beyond_the_shutdown_grace_period_is_cancelled() -> None:
    ended: list[str] = []

    async def shut_down() -> None:
        background, started = background_work(), asyncio.Event()

        async def work() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("broken off")

        await background.wait_for(work(), 0)
        await started.wait()
        await background.end(0)
        assert ended == ["broken off"]
        await background.end(0)

    asyncio.run(shut_down())
    assert ended == ["broken off"]


def test_a_background_failure_is_logged_and_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise RuntimeError("a bug")

    asyncio.run(background_work().wait_for(work(), LONG))
    assert "It has failed" in caplog.text


def test_work_beyond_the_limit_is_not_started() -> None:
    started: list[int] = []

    async def start_three() -> None:
        background = background_work(most=1)

        async def work(number: int) -> None:
            started.append(number)
            await asyncio.Event().wait()

        for number in range(3):
            await background.wait_for(work(number), 0)
        await asyncio.sleep(0)
        await background.end(0)

    asyncio.run(start_three())
    assert started == [0]
