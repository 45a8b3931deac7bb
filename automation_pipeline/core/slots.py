"""A bounded number of places across processes, made of leases: for work that must not crowd a provider."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from automation_pipeline.core.coordination import Lease, Leases


@dataclass(frozen=True)
class Slots:
    """`places` of the name may be held at once, each kept by a heartbeat; a dead holder's comes free by itself."""

    leases: Leases
    name: str
    places: int
    owner: str
    ttl_seconds: float = 30.0
    poll_seconds: float = 0.1

    @asynccontextmanager
    async def hold_one(self) -> AsyncGenerator[Lease]:
        lease = await self._wait()
        beating = asyncio.create_task(self._beat(lease))
        try:
            yield lease
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await asyncio.to_thread(self.leases.release, lease)

    async def _wait(self) -> Lease:
        random = Random()
        while True:
            for place in random.sample(range(self.places), self.places):
                key, holder = f"{self.name}:{place}", f"{self.owner}/{id(asyncio.current_task())}"
                lease = await asyncio.to_thread(self.leases.acquire, key, holder, self.ttl_seconds)
                if lease is not None:
                    return lease
            await asyncio.sleep(random.uniform(0.5, 1.5) * self.poll_seconds)

    async def _beat(self, lease: Lease) -> None:
        while await asyncio.to_thread(self.leases.extend, lease, self.ttl_seconds):  # noqa: ASYNC110  no event to wait for
            await asyncio.sleep(self.ttl_seconds / 4)
