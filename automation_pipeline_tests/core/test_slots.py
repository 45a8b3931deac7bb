"""Slots: never more holders than places, across processes; a dead holder's place comes free."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from automation_pipeline.core.coordination import Lease, Leases
from automation_pipeline.core.slots import Slots
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.leases import DatabaseLeases


@pytest.fixture
def leases(database: Database) -> Leases:
    return DatabaseLeases(database)


class Crowd:
    """How many are inside, and how many were at most."""

    def __init__(self) -> None:
        self.inside = self.most = self.been = 0

    @contextmanager
    def enter(self) -> Iterator[None]:
        self.inside += 1
        self.been += 1
        self.most = max(self.most, self.inside)
        yield
        self.inside -= 1


def test_no_more_are_inside_than_there_are_places_and_everybody_gets_in(leases: Leases) -> None:
    crowd = Crowd()
    slots = Slots(leases, "crm", 3, "me", poll_seconds=0.01)

    async def visit() -> None:
        async with slots.hold_one():
            with crowd.enter():
                await asyncio.sleep(0.02)

    async def all_visits() -> None:
        await asyncio.gather(*(visit() for _ in range(12)))

    asyncio.run(all_visits())
    assert (crowd.most, crowd.been) == (3, 12)


def test_a_place_is_kept_for_longer_than_its_lease_lasts(leases: Leases) -> None:
    slots = Slots(leases, "crm", 1, "me", ttl_seconds=0.4)

    async def hold_on() -> Lease | None:
        async with slots.hold_one():
            await asyncio.sleep(1.2)
            return leases.acquire("crm:0", "somebody else", 1)

    assert asyncio.run(hold_on()) is None
    assert leases.holder("crm:0") is None


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_the_place_of_a_dead_holder_comes_free_by_itself(leases: Leases) -> None:
    assert leases.acquire("crm:0", "dead", 0.3)

    async def get_in() -> str:
        async with Slots(leases, "crm", 1, "me", poll_seconds=0.01).hold_one() as lease:
            return lease.owner

    assert asyncio.run(get_in()).startswith("me/")


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_an_error_inside_gives_the_place_back(leases: Leases) -> None:
    async def fail() -> None:
        async with Slots(leases, "crm", 1, "me").hold_one():
            raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(fail())
    assert leases.holder("crm:0") is None
