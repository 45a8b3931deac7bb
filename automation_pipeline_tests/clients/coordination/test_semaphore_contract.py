"""The `core.coordination.Permits` contract on both databases and on Redis."""

import asyncio
import uuid

import pytest

from automation_pipeline.core.coordination import Permit
from automation_pipeline_tests.clients.coordination.processes import acquire_many
from automation_pipeline_tests.clients.coordination.semaphores import (
    backend_url,
    on_every_backend,
    permits_at,
)
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes

pytestmark = on_every_backend


@pytest.fixture
def url(database_kind: str, request: pytest.FixtureRequest) -> str:
    return backend_url(database_kind, request)


@pytest.fixture
def name() -> str:
    return f"semaphore-{uuid.uuid4()}"


def test_limits_apply_per_name_and_released_permits_can_be_reacquired(url: str, name: str) -> None:
    async def use() -> None:
        with permits_at(url) as permits:
            held = [await permits.acquire(name, 2, "anna", 30.0) for _ in range(3)]
            assert [permit is not None for permit in held] == [True, True, False]
            assert await permits.acquire(f"{name}:other", 1, "anna", 30.0)
            assert await permits.acquire(name, 3, "anna", 30.0), (
                "a higher limit grants another permit"
            )
            for permit in held:
                await (permit.release() if permit else asyncio.sleep(0))
            assert await permits.acquire(name, 2, "berta", 30.0)

    asyncio.run(use())


def test_an_abandoned_permit_expires_and_an_extended_permit_does_not(url: str, name: str) -> None:
    async def use() -> None:
        with permits_at(url) as permits:
            dead, alive = [
                await permits.acquire(name, 2, owner, 0.2) for owner in ("dead", "alive")
            ]
            assert dead is not None
            assert alive is not None
            await alive.extend(30.0)
            freed: Permit | None = None
            while freed is None:
                freed = await permits.acquire(name, 2, "anna", 30.0)
                await asyncio.sleep(0.01)
            assert await permits.acquire(name, 2, "berta", 30.0) is None

    asyncio.run(use())


def test_concurrent_processes_acquire_no_more_permits_than_the_limit(url: str, name: str) -> None:
    assert (
        sum(run_in_processes(acquire_many, *((url, name, 5, 4) for _ in range(PROCESS_COUNT)))) == 5
    )
