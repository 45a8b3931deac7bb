"""Fixtures of enrichment: the harness, and waits of source calls that take no real time."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest

from automation_pipeline.enrichment import sources as call_source
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.enrichment.harness import EnrichmentHarness
from automation_pipeline_tests.fakes.clock import FakeClock


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> EnrichmentHarness:
    return EnrichmentHarness(database, clock)


@pytest.fixture
def advance_during_waits(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeClock], list[float]]:
    """Makes the waits before calls of sources advance a clock, and returns the list of those waits."""

    def advance(clock: FakeClock) -> list[float]:
        waited: list[float] = []

        async def sleep(seconds: float) -> None:
            if seconds:
                waited.append(seconds)
                clock.advance(timedelta(seconds=seconds))
            await asyncio.sleep(0)

        fake_asyncio = SimpleNamespace(
            sleep=sleep, to_thread=asyncio.to_thread, timeout=asyncio.timeout
        )
        monkeypatch.setattr(call_source, "asyncio", fake_asyncio)
        return waited

    return advance


@pytest.fixture(autouse=True)
def waits(
    clock: FakeClock, advance_during_waits: Callable[[FakeClock], list[float]]
) -> list[float]:
    """The waits before calls of sources so far, in seconds."""
    return advance_during_waits(clock)
