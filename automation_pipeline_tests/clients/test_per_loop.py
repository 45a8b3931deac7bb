"""One of a thing for each event loop."""

import asyncio

from automation_pipeline.clients.per_loop import PerLoop


def test_a_loop_keeps_its_thing_and_another_has_its_own() -> None:
    things = PerLoop(object)

    async def twice() -> tuple[object, object]:
        return things.here(), things.here()

    first, again = asyncio.run(twice())
    assert first is again
    assert asyncio.run(twice())[0] is not first


def test_what_is_taken_is_made_anew_when_it_is_asked_for() -> None:
    things = PerLoop(object)

    async def visit() -> None:
        assert things.taken() is None
        first = things.here()
        assert things.taken() is first
        assert things.here() is not first

    asyncio.run(visit())
