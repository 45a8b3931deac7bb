"""Enrichments that the API begins: they outlive the wait for them, and end with the server."""

import asyncio

import pytest

from automation_pipeline.api import idempotency as module
from automation_pipeline.api.idempotency import Attempts

LONG = 60.0


def test_what_ends_in_time_is_over_when_the_wait_is() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("done")

    asyncio.run(Attempts().wait_for(work(), LONG))
    assert done == ["done"]


def test_what_takes_longer_goes_on_and_is_waited_for_at_the_end() -> None:
    done: list[str] = []

    async def shut_down() -> None:
        attempts, gate = Attempts(), asyncio.Event()

        async def work() -> None:
            await gate.wait()
            done.append("done")

        await attempts.wait_for(work(), 0)
        assert done == []
        gate.set()
        await attempts.end(LONG)

    asyncio.run(shut_down())
    assert done == ["done"]


def test_what_does_not_end_within_the_grace_is_broken_off() -> None:
    ended: list[str] = []

    async def shut_down() -> None:
        attempts, begun = Attempts(), asyncio.Event()

        async def work() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("broken off")

        await attempts.wait_for(work(), 0)
        await begun.wait()
        await attempts.end(0)
        await attempts.end(0)

    asyncio.run(shut_down())
    assert ended == ["broken off"]


def test_a_failure_does_not_reach_who_waits() -> None:
    async def work() -> None:
        raise RuntimeError("a bug")

    asyncio.run(Attempts().wait_for(work(), LONG))


def test_beyond_so_many_at_once_the_rest_is_left_to_dagster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AT_MOST", 1)
    begun: list[int] = []

    async def crowd() -> None:
        attempts = Attempts()

        async def work(number: int) -> None:
            begun.append(number)
            await asyncio.Event().wait()

        for number in range(3):
            await attempts.wait_for(work(number), 0)
        await asyncio.sleep(0)
        await attempts.end(0)

    asyncio.run(crowd())
    assert begun == [0]
