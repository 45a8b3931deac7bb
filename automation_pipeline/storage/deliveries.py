"""Messages that wait in a table: the oldest few are claimed, sent side by side, and how each stands is written down."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from automation_pipeline.core.delivery import INTERRUPTED, Answer, Delivery, DeliveryStatus, Patience, attempt
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.instants import database_time

BROKE_OFF = "Its delivery broke off every time"


class Claimed(Protocol):
    @property
    def attempt(self) -> int: ...


Due = TypeVar("Due", bound=Claimed)


@dataclass(frozen=True)
class Tray(Generic[Due]):
    """Where messages of one kind wait. Each claim is an attempt; what is recorded late, after somebody else has claimed
    it, changes nothing."""

    is_due: Callable[[Session], bool]
    claim: Callable[[Session], Sequence[Due]]
    record: Callable[[Session, Due, Delivery], None]


async def deliver_waiting(
    tray: Tray[Due], send: Callable[[Due, datetime], Awaitable[Answer]], *, patience: Patience, database: Database
) -> int:
    """How many were tried: it takes no longer than one attempt may. Who dies between sending and writing it down has
    used up an attempt, and the receiver can tell by the delivery's name. `send` is told the present."""
    with database.reading() as session:
        if not tray.is_due(session):  # a claim would stand in line with the writers for nothing
            return 0
    with database.transaction() as session:
        claimed, now = tray.claim(session), database_time(session)

    async def deliver(due: Due) -> None:
        if due.attempt > patience.attempts:
            delivery = Delivery(DeliveryStatus.FAILED, due.attempt, error=BROKE_OFF)
        else:
            try:
                delivery = await attempt(send(due, now), due.attempt, patience)
            except asyncio.CancelledError:  # another relay need not wait for the end of the hold
                record(due, Delivery(DeliveryStatus.PENDING, due.attempt, error=INTERRUPTED))
                raise
        record(due, delivery)

    def record(due: Due, delivery: Delivery) -> None:
        with database.transaction() as session:
            tray.record(session, due, delivery)

    ended = await asyncio.gather(*map(deliver, claimed), return_exceptions=True)
    for broken in ended:  # after the others are through: the database does not answer
        if broken is not None:
            raise broken
    return len(claimed)
