"""Tasks together: the first error as itself, and nothing left running."""

import asyncio

import pytest

from automation_pipeline.core.background import together


def test_an_error_of_a_task_comes_out_as_itself_and_ends_the_others() -> None:
    ended: list[str] = []

    async def fail() -> None:
        raise LookupError("me")

    async def go_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("the other")

    async def both() -> None:
        async with together() as group:
            group.create_task(go_on())
            group.create_task(fail())

    with pytest.raises(LookupError, match="me"):
        asyncio.run(both())
    assert ended == ["the other"]


def test_an_error_of_the_block_comes_out_as_itself() -> None:
    async def block() -> None:
        async with together():
            raise LookupError("block")

    with pytest.raises(LookupError, match="block"):
        asyncio.run(block())


def test_a_good_day_raises_nothing() -> None:
    done: list[int] = []

    async def note(number: int) -> None:
        done.append(number)

    async def work() -> None:
        async with together() as group:
            for number in range(3):
                group.create_task(note(number))

    asyncio.run(work())
    assert sorted(done) == [0, 1, 2]
