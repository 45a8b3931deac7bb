"""Fixtures of enrichment: the bench, and source calls whose waits take no real time."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest

from automation_pipeline.enrichment import sources as call_source
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.enrichment.bench import Bench


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


@pytest.fixture
def waiting_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[StandingClock], list[float]]:
    """Waits before calls of sources advance this clock. Returns the list of waits."""

    def wait_by(clock: StandingClock) -> list[float]:
        waited: list[float] = []

        async def sleep(seconds: float) -> None:
            if seconds:
                waited.append(seconds)
                clock.pass_time(timedelta(seconds=seconds))
            await asyncio.sleep(0)

        fake_asyncio = SimpleNamespace(
            sleep=sleep, to_thread=asyncio.to_thread, timeout=asyncio.timeout
        )
        monkeypatch.setattr(call_source, "asyncio", fake_asyncio)
        return waited

    return wait_by


@pytest.fixture(autouse=True)
def waits(clock: StandingClock, waiting_by: Callable[[StandingClock], list[float]]) -> list[float]:
    """All waits before calls, in seconds."""
    return waiting_by(clock)
