"""The work loop runs all async work of a process in the context of the caller and leaves no task running."""

import asyncio
import contextlib
import threading

import pytest

from automation_pipeline.bootstrap import WorkLoop
from automation_pipeline.core.background import process_concurrently
from automation_pipeline.core.logs import correlated, correlation_id
from automation_pipeline.core.metrics import Meter
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import MetricsFlusher, all_metrics

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


async def current() -> str | None:
    return correlation_id()


def test_each_call_has_the_correlation_id_of_its_caller(database: Database) -> None:
    loop = WorkLoop(MetricsFlusher(Meter(), lambda: database))
    assert loop.run(current()) is None
    for name in ("one", "two"):
        with correlated(name):
            assert loop.run(current()) == name
    assert loop.run(current()) is None


def test_interrupted_work_leaves_no_task_running_and_keeps_its_counts(
    database: Database,
) -> None:
    meter, ended = Meter(), []
    loop = WorkLoop(MetricsFlusher(meter, lambda: database))

    async def background_task() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        ended.append("background_task")

    async def work() -> None:
        task = asyncio.ensure_future(background_task())
        await asyncio.sleep(0)
        meter.count("a_total")
        assert not task.done()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    assert ended == ["background_task"]
    assert loop.run(current()) is None, "the loop still works"
    with database.reading() as session:
        assert [each.name for each in all_metrics(session)] == ["a_total"]


def test_tasks_finish_their_cleanup_after_an_interrupt(database: Database) -> None:
    tidied: list[int] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def call(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tidied.append(number)

    async def work() -> None:
        asyncio.get_running_loop().call_later(0.01, interrupt)
        await process_concurrently(range(50), call, list, width=50)

    with pytest.raises(KeyboardInterrupt):
        WorkLoop(MetricsFlusher(Meter(), lambda: database)).run(work())
    assert sorted(tidied) == list(range(50))


def test_at_most_64_threads_wait_for_servers_at_the_same_time(database: Database) -> None:
    running, done, lock = [], threading.Event(), threading.Lock()

    def call() -> None:
        with lock:
            running.append(threading.get_ident())
            is_full = len(running) == 64
        if is_full:
            # Gives a 65th thread time to begin; without one, the test only waits.
            done.wait(0.1)
            most.append(len(running))
            done.set()
        done.wait(60)

    async def work() -> None:
        await asyncio.gather(*(asyncio.to_thread(call) for _ in range(70)))

    most: list[int] = []
    WorkLoop(MetricsFlusher(Meter(), lambda: database)).run(work())
    assert (most, len(running)) == ([64], 70)
