"""`core.coordination.Leases`, sentence by sentence, in both databases and in Redis, alone and between processes."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete

from automation_pipeline.core.coordination import Lease, Leases, acquire, release
from automation_pipeline.locks.redis_connection import connect
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.leases import LeaseRow
from automation_pipeline_tests.locks.places import address, leases_at, on_every_place
from automation_pipeline_tests.locks.processes import acquire_once, hold_in_turn
from automation_pipeline_tests.processes import CREW, at_once
from automation_pipeline_tests.waiting import wait_until

pytestmark = on_every_place

SHORT = 0.15
LONG = 30.0


@pytest.fixture
def place(database_kind: str, request: pytest.FixtureRequest) -> str:
    return address(database_kind, request)


@pytest.fixture
def leases(place: str) -> Iterator[Leases]:
    with leases_at(place) as leases:
        yield leases


@pytest.fixture
def key() -> str:
    return f"work:{uuid.uuid4()}"


def taken(leases: Leases, key: str, owner: str = "anna", ttl_seconds: float = LONG) -> Lease:
    lease = leases.acquire(key, owner, ttl_seconds)
    assert lease is not None
    return lease


def ended(leases: Leases, key: str) -> None:
    wait_until(lambda: leases.holder(key) is None)


@pytest.mark.parametrize("second", ["berta", "anna"])
def test_a_held_key_is_refused_to_everybody_its_owner_included(leases: Leases, key: str, second: str) -> None:
    first = taken(leases, key, "anna")
    assert leases.acquire(key, second, LONG) is None
    holder = leases.holder(key)
    assert holder is not None
    assert (holder.owner, holder.token) == ("anna", first.token)


def test_a_lease_names_its_key_and_its_owner(leases: Leases, key: str) -> None:
    lease = taken(leases, key, "anna")
    assert (lease.key, lease.owner) == (key, "anna")


def test_keys_are_held_independently(leases: Leases, key: str) -> None:
    taken(leases, key, "anna")
    taken(leases, f"{key}:other", "berta")


def test_a_lease_ends_by_itself_and_not_before_its_time(leases: Leases, key: str) -> None:
    begun = time.monotonic()
    first = taken(leases, key, "anna", SHORT)
    following: list[Lease | None] = []
    wait_until(lambda: following.append(leases.acquire(key, "berta", LONG)) or following[-1] is not None)
    assert time.monotonic() - begun > SHORT - 0.01  # some clocks count in milliseconds
    assert following[-1]
    assert following[-1].token > first.token


def test_tokens_rise_from_holder_to_holder_however_fast_they_change(leases: Leases, key: str) -> None:
    tokens: list[int] = []
    for _ in range(30):
        lease = taken(leases, key)
        tokens.append(lease.token)
        assert leases.release(lease)
    assert tokens == sorted(set(tokens))


def test_tokens_rise_although_the_place_forgot_everything(leases: Leases, place: str, key: str) -> None:
    first = taken(leases, key)
    leases.release(first)
    forget(place, key)
    wait_until(lambda: renewed(leases, key).token > first.token)


def renewed(leases: Leases, key: str) -> Lease:
    lease = taken(leases, key)
    leases.release(lease)
    return lease


def forget(place: str, key: str) -> None:
    if place.startswith("redis"):
        client = connect(place)
        for name in client.scan_iter(match=f"*{key}*"):
            client.delete(name)
        client.close()
        return
    database = Database(place)
    with database.transaction() as session:
        session.execute(delete(LeaseRow).where(LeaseRow.key == key))
    database.dispose()


def test_an_extended_lease_outlives_its_first_time(leases: Leases, key: str) -> None:
    lease = taken(leases, key, "anna", LONG)
    assert leases.extend(lease, 2 * LONG)
    holder = leases.holder(key)
    assert holder is not None
    assert LONG < holder.seconds_left <= 2 * LONG


def test_extending_counts_from_now_so_it_can_shorten_too(leases: Leases, key: str) -> None:
    lease = taken(leases, key, "anna", LONG)
    assert leases.extend(lease, SHORT)
    ended(leases, key)


def test_an_ended_lease_can_be_neither_extended_nor_released(leases: Leases, key: str) -> None:
    lease = taken(leases, key, "anna", SHORT)
    ended(leases, key)
    assert not leases.extend(lease, LONG)
    assert not leases.release(lease)
    assert leases.holder(key) is None


def test_a_lease_that_passed_on_can_be_neither_extended_nor_released(leases: Leases, key: str) -> None:
    stale = taken(leases, key, "anna", SHORT)
    ended(leases, key)
    current = taken(leases, key, "anna")
    assert not leases.extend(stale, LONG)
    assert not leases.release(stale)
    holder = leases.holder(key)
    assert holder is not None
    assert holder.token == current.token
    assert leases.extend(current, LONG)


def test_a_released_key_is_free_at_once_and_released_once(leases: Leases, key: str) -> None:
    lease = taken(leases, key, "anna")
    assert leases.release(lease)
    assert not leases.release(lease)
    assert not leases.extend(lease, LONG)
    assert taken(leases, key, "berta").token > lease.token


def test_a_lease_nobody_ever_took_cannot_be_given_back(leases: Leases, key: str) -> None:
    assert not leases.release(Lease(key, "anna", 1))
    assert not leases.extend(Lease(key, "anna", 1), LONG)
    assert leases.holder(key) is None


def test_the_holder_is_told_with_owner_token_and_seconds_left(leases: Leases, key: str) -> None:
    assert leases.holder(key) is None
    lease = taken(leases, key, "Zoë / worker 1", LONG)
    holder = leases.holder(key)
    assert holder is not None
    assert (holder.owner, holder.token) == ("Zoë / worker 1", lease.token)
    assert LONG - 20 < holder.seconds_left <= LONG
    leases.release(lease)
    assert leases.holder(key) is None


def test_processes_racing_for_a_key_never_hold_it_together(place: str, key: str, tmp_path: Path) -> None:
    wins = 30
    intruders = at_once(hold_in_turn, *((place, key, f"process {n}", wins, tmp_path) for n in range(CREW)))
    tokens = [int(line) for line in (tmp_path / "book").read_text().split()]
    assert sum(intruders) == 0
    assert len(tokens) == CREW * wins
    assert tokens == sorted(set(tokens))


def test_of_processes_finding_an_ended_lease_one_gets_it(leases: Leases, place: str, key: str) -> None:
    dead = taken(leases, key, "dead", SHORT)
    ended(leases, key)
    tokens = at_once(acquire_once, *((place, key, f"process {n}") for n in range(CREW)))
    [winner] = [token for token in tokens if token is not None]
    assert winner > dead.token


def test_tasks_ask_for_them_by_the_same_rules(leases: Leases, key: str) -> None:
    async def ask() -> list[Lease | None]:
        return await asyncio.gather(*(acquire(leases, key, f"anna {at}", LONG) for at in range(5)))

    [lease] = filter(None, asyncio.run(ask()))
    assert leases.acquire(key, "berta", LONG) is None
    assert [asyncio.run(release(leases, lease)) for _ in range(2)] == [True, False]
    later = taken(leases, key, "berta")
    assert later.token > lease.token
    assert asyncio.run(release(leases, lease)) is False
    assert leases.holder(key) is not None
