"""Async work that a caller waits for ends in time, whatever becomes of it."""

import asyncio

import pytest

from automation_pipeline.api.errors import done_in_time
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.settings import Settings


def services(seconds: float) -> Services:
    return Services(Settings(API_TIMEOUT_SECONDS=seconds))


def test_what_it_comes_to_is_answered() -> None:
    assert done_in_time(asyncio.sleep(0, "done"), services(600)) == "done"


def test_its_failure_is_its_own() -> None:
    async def fail() -> None:
        raise TransientError("The shop is away.")

    with pytest.raises(TransientError, match="The shop is away"):
        done_in_time(fail(), services(600))


def test_what_takes_too_long_is_broken_off() -> None:
    ends: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("broken off")

    with pytest.raises(TimeoutError):
        done_in_time(hang(), services(0.01))
    assert ends == ["broken off"]
