"""Calls that time out in the middle of the response."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import TypeVar

import httpx
import pytest

from automation_pipeline_tests import waiting

Result = TypeVar("Result")


def result_after_timeout(
    text: str,
    call: Coroutine[object, object, Result],
    seconds: float,
    monkeypatch: pytest.MonkeyPatch,
) -> Result:
    """Advances the clock by `seconds` once the client has read `text` and waits for more."""
    read, pieces_of = bytearray(), httpx.Response.aiter_raw

    async def recorded(answer: httpx.Response) -> AsyncIterator[bytes]:
        async for piece in pieces_of(answer):
            yield piece
            read.extend(piece)

    async def called() -> Result:
        task = asyncio.ensure_future(call)
        await waiting.wait_until_async(lambda: read == text.encode() or task.done())
        waiting.advance_time(seconds)
        return await task

    monkeypatch.setattr(httpx.Response, "aiter_raw", recorded)
    return waiting.run_with_fake_time(called())
