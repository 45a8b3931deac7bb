"""What the processes of the lease and limiter tests do."""

import os
import time
from pathlib import Path

from automation_pipeline.core.coordination import Lease, Rate
from automation_pipeline_tests.locks.places import leases_at, limiter_at
from automation_pipeline_tests.waiting import pause


def hold_in_turn(url: str, key: str, owner: str, wins: int, room: Path) -> int:
    """Take the lease `wins` times, each time writing its token in the shared book. Returns the intruders met."""
    met = 0
    with leases_at(url) as leases:
        while wins:
            lease = leases.acquire(key, owner, 30.0)
            if lease is None:
                pause(0.002)
                continue
            wins -= 1
            met += _alone_in(room, lease)
            assert leases.release(lease)
    return met


def _alone_in(room: Path, lease: Lease) -> int:
    door = room / "inside"
    try:
        os.close(os.open(door, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return 1
    with (room / "book").open("a") as book:
        book.write(f"{lease.token}\n")
    door.unlink()
    return 0


def acquire_once(url: str, key: str, owner: str) -> int | None:
    with leases_at(url) as leases:
        lease = leases.acquire(key, owner, 30.0)
    return lease.token if lease else None


def reserve_many(url: str, key: str, rate: Rate, count: int) -> list[float]:
    """The reserved instants, late by no more than one call takes."""
    instants: list[float] = []
    with limiter_at(url) as limiter:
        for _ in range(count):
            wait = limiter.reserve(key, rate)
            assert wait is not None
            instants.append(time.time() + wait)
    return instants
