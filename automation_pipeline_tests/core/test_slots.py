"""Slots: never more holders than places, across processes; a dead holder's place comes free."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Signal
from threading import Thread

import pytest

from automation_pipeline.core import slots as slots_module
from automation_pipeline.core.coordination import Holder, Lease, Leases
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.slots import Slots
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.leases import DatabaseLeases
from automation_pipeline_tests.waiting import come_true, leap, run

# More is left of a lease than BEATEN only when a heartbeat has just extended it.
TTL, BEATEN = 60.0, 45.0


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

    async def all_visits() -> None:
        full = asyncio.Event()

        async def visit() -> None:
            async with slots.hold_one():
                with crowd.enter():
                    if crowd.inside == 3:
                        full.set()
                    await full.wait()
                    await asyncio.sleep(0)

        await asyncio.gather(*(visit() for _ in range(12)))

    asyncio.run(all_visits())
    assert (crowd.most, crowd.been) == (3, 12)


def test_a_place_is_kept_for_longer_than_its_lease_lasts(leases: Leases) -> None:
    async def hold_on() -> Lease | None:
        async with Slots(leases, "crm", 1, "me", ttl_seconds=TTL).hold_one() as lease:
            for _ in range(6):  # quarters of its lease
                await lapse(leases, lease)
                leap(TTL / 4)
                await come_true(lambda: seconds_left(leases) > BEATEN)
            return leases.acquire("crm:0", "somebody else", 1)

    assert run(hold_on(), threads=1) is None
    assert leases.holder("crm:0") is None


async def lapse(leases: Leases, lease: Lease) -> None:
    """For the database too a part of the lease's time has passed."""
    assert await asyncio.to_thread(leases.extend, lease, BEATEN - 5)


def seconds_left(leases: Leases) -> float:
    holder = leases.holder("crm:0")
    return holder.seconds_left if holder else 0.0


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


class SpoiltLeases:
    """The leases, of which a method can be made to fail or to answer something else; counts what is asked."""

    def __init__(self, leases: Leases) -> None:
        self.leases = leases
        self.asked = Counter[str]()
        self.troubles: dict[str, list[Exception | bool]] = {}

    def _trouble(self, method: str) -> bool | None:
        self.asked[method] += 1
        trouble = self.troubles[method].pop(0) if self.troubles.get(method) else None
        if isinstance(trouble, Exception):
            raise trouble
        return trouble

    def acquire(self, key: str, owner: str, ttl_seconds: float) -> Lease | None:
        self._trouble("acquire")
        return self.leases.acquire(key, owner, ttl_seconds)

    def extend(self, lease: Lease, ttl_seconds: float) -> bool:
        told = self._trouble("extend")
        return self.leases.extend(lease, ttl_seconds) if told is None else told

    def release(self, lease: Lease) -> bool:
        self._trouble("release")
        return self.leases.release(lease)

    def holder(self, key: str) -> Holder | None:
        return self.leases.holder(key)


@pytest.fixture
def spoilt(tmp_path: Path, sqlite_template: Path) -> Iterator[SpoiltLeases]:
    database = Database(f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'spoilt.db')}")
    yield SpoiltLeases(DatabaseLeases(database))
    database.dispose()


AWAY = TransientError("The database does not answer.")


async def work(slots: Slots, seconds: float) -> str:
    async with slots.hold_one():
        await asyncio.sleep(seconds)
        return "result"


def test_who_waits_behind_its_own_process_is_given_the_place_and_asks_nobody(spoilt: SpoiltLeases) -> None:
    slots = Slots(spoilt, "crm", 1, "me", poll_seconds=0.01)

    async def crowd() -> list[str]:
        return await asyncio.gather(*(work(slots, 0) for _ in range(5)))

    for _ in range(2):  # each time in a loop of its own
        assert asyncio.run(crowd()) == ["result"] * 5
    assert (spoilt.asked["acquire"], spoilt.asked["release"]) == (2, 2)
    assert spoilt.holder("crm:0") is None


def test_a_busy_process_keeps_nobody_out(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots_module, "OURS_SECONDS", 0.05)
    ours, others = (Slots(leases, "crm", 1, owner, poll_seconds=0.01) for owner in ("us", "others"))

    async def both() -> None:
        async def be_busy() -> None:
            while True:
                await work(ours, 0.005)

        busy = [asyncio.create_task(be_busy()) for _ in range(3)]
        await asyncio.wait_for(work(others, 0), 60)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    asyncio.run(both())
    assert leases.holder("crm:0") is None


def test_a_place_that_is_left_for_somebody_who_has_gone_is_given_back(spoilt: SpoiltLeases) -> None:
    slots = Slots(spoilt, "crm", 1, "me")

    async def go() -> None:
        async with slots.hold_one():
            waiting = asyncio.create_task(work(slots, 0))
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    asyncio.run(go())
    assert spoilt.holder("crm:0") is None


@contextmanager
def held_up(leases: Leases) -> Iterator[None]:
    """Nobody else writes meanwhile."""
    assert isinstance(leases, DatabaseLeases)
    may_go = Signal()
    holding = Thread(target=leases._database.write_soon, args=(lambda _: may_go.wait(60),))
    holding.start()
    try:
        yield
    finally:
        may_go.set()
        holding.join()


def test_who_is_cancelled_again_and_again_gives_the_place_back_all_the_same(leases: Leases) -> None:
    slots = Slots(leases, "crm", 1, "me", ttl_seconds=3600)

    async def go() -> None:
        is_in = asyncio.Event()

        async def hold_on() -> None:
            async with slots.hold_one():
                is_in.set()
                await asyncio.sleep(3600)

        working = asyncio.create_task(hold_on())
        await is_in.wait()
        with held_up(leases):
            while not working.done():
                working.cancel()
                await asyncio.sleep(0)
        await come_true(lambda: leases.holder("crm:0") is None)

    asyncio.run(go())


def test_who_waits_for_another_process_asks_less_and_less_often(spoilt: SpoiltLeases) -> None:
    spoilt.acquire("crm:0", "another process", 60)

    async def wait_in_vain() -> float:
        begun = asyncio.get_running_loop().time()
        waiting = asyncio.create_task(work(Slots(spoilt, "crm", 1, "me", poll_seconds=0.01), 0))
        await come_true(lambda: spoilt.asked["acquire"] >= 8)
        waiting.cancel()
        return asyncio.get_running_loop().time() - begun

    shortest = 0.01 * 0.5  # with all the luck there is
    assert asyncio.run(wait_in_vain()) >= shortest * (1 + 2 + 4 + 8 + 16 + 32)


def test_a_heartbeat_that_failed_is_tried_again_before_the_lease_ends(spoilt: SpoiltLeases) -> None:
    spoilt.troubles["extend"] = [AWAY, AWAY]

    async def hold_on() -> Lease | None:
        async with Slots(spoilt, "crm", 1, "me", ttl_seconds=TTL).hold_one() as lease:
            for beats in (1, 2):
                await come_true(lambda beats=beats: spoilt.asked["extend"] == beats)
                await lapse(spoilt.leases, lease)
                leap(TTL / 4)
            await come_true(lambda: seconds_left(spoilt) > BEATEN)
            return spoilt.acquire("crm:0", "somebody else", 1)

    assert run(hold_on(), threads=1) is None
    assert spoilt.asked["extend"] == 3


@pytest.mark.parametrize("troubles", [[False], [AWAY] * 100, [LookupError("a bug")]], ids=["lost", "away", "bug"])
def test_who_loses_the_place_is_cancelled_and_told(spoilt: SpoiltLeases, troubles: list[Exception | bool]) -> None:
    spoilt.troubles["extend"] = list(troubles)
    finished: list[str] = []

    async def outlive() -> None:
        finished.append(await work(Slots(spoilt, "crm", 1, "me", ttl_seconds=0.4), 60))

    with pytest.raises(TransientError, match=r"^The place crm:0 was lost: its lease ended\.$") as caught:
        asyncio.run(outlive())
    assert isinstance(caught.value.__cause__, LookupError) == isinstance(troubles[0], LookupError)
    assert finished == []


def test_a_timeout_of_the_work_itself_stays_one(spoilt: SpoiltLeases) -> None:
    async def time_out() -> None:
        async with Slots(spoilt, "crm", 1, "me").hold_one():
            raise TimeoutError

    with pytest.raises(TimeoutError):
        asyncio.run(time_out())


def test_a_place_that_cannot_be_given_back_does_not_take_the_result_with_it(
    spoilt: SpoiltLeases, caplog: pytest.LogCaptureFixture
) -> None:
    spoilt.troubles["release"] = [AWAY]
    assert asyncio.run(work(Slots(spoilt, "crm", 1, "me"), 0)) == "result"
    assert "The place crm:0 comes free only when its lease ends" in caplog.text
