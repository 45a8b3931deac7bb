"""One call of a shop, at its turn: when the bucket holds its points and the circuit lets it through."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

from automation_pipeline.core.events import Event
from automation_pipeline.core.instants import iso
from automation_pipeline.pricing.domain.circuit import Answer, CallKind, Circuit, has_opened
from automation_pipeline.pricing.domain.failures import FailureKind, Signal, classified
from automation_pipeline.pricing.domain.keys import circuit_key
from automation_pipeline.pricing.domain.pricing_rule import TENANT
from automation_pipeline.pricing.domain.shop_calls import Called, CallNotWantedError, ShopRestingError
from automation_pipeline.pricing.ports import Storefront
from automation_pipeline.pricing.store.shops import Heard, Turn, give_back, hear, take_turn
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue

# A shop that rests may be well again sooner than it said: somebody else's probe.
LOOK_AGAIN_SECONDS = 1.0

Value = TypeVar("Value")


async def call_shop(
    call: Callable[[], Awaitable[Called[Value]]],
    cost: float,
    *,
    front: Storefront,
    database: Database,
    kind: CallKind = CallKind.READ,
    is_wanted: Callable[[], Awaitable[bool]] | None = None,
) -> Called[Value]:
    """What the call brought, as a value whatever it was. Every process that calls the shop comes through here: together
    they keep its pace. ShopRestingError: it is to be left alone for longer than a worker stays. CallNotWantedError:
    whoever was asked when the turn came said so."""
    turn = await _turn(cost, front, database)
    if is_wanted is not None:
        await _check_wanted(is_wanted, cost, turn, front, database)
    called: Called[Value] | None = None
    try:
        called = await _answer(call, front)
        return called
    finally:
        await asyncio.to_thread(_hear, _said(called, kind, cost, turn.at), front, database)


async def _check_wanted(
    is_wanted: Callable[[], Awaitable[bool]], cost: float, turn: Turn, front: Storefront, database: Database
) -> None:
    wanted = False
    try:
        wanted = await is_wanted()
    finally:
        if not wanted:
            await asyncio.to_thread(_give_back, cost, front, database, turn)
    if not wanted:
        raise CallNotWantedError("The call is not wanted any more.")


async def _answer(call: Callable[[], Awaitable[Called[Value]]], front: Storefront) -> Called[Value]:
    try:
        async with asyncio.timeout(front.knobs.call_seconds):
            return await call()
    except TimeoutError:
        words = f"The shop did not answer within {front.knobs.call_seconds:g} s."
        return Called(failure=classified(Signal(lost=True), words))


async def _turn(cost: float, front: Storefront, database: Database) -> Turn:
    """The turn of the call, when it has come."""
    promising = asyncio.create_task(asyncio.to_thread(_take_turn, cost, front, database, is_promised=False))
    goes = False
    try:
        turn = await asyncio.shield(promising)
        while turn.seconds > 0:
            if turn.is_resting and turn.seconds > front.knobs.longest_pause_seconds:
                raise ShopRestingError(f"{front.name} is to be left alone.", retry_after_seconds=turn.seconds)
            await asyncio.sleep(min(turn.seconds, LOOK_AGAIN_SECONDS) if turn.is_resting else turn.seconds)
            turn = await asyncio.to_thread(_take_turn, cost, front, database, is_promised=True)
        goes = True
        return turn
    finally:
        if not goes and await _came_about(promising):
            await asyncio.to_thread(_give_back, cost, front, database)


async def _came_about(promise: asyncio.Task[Turn]) -> bool:
    """Known only when it has ended: who is broken off does not stop the thread that promises."""
    await asyncio.wait({promise})
    return not promise.cancelled() and promise.exception() is None


def _take_turn(cost: float, front: Storefront, database: Database, *, is_promised: bool) -> Turn:
    with database.transaction() as session:
        return take_turn(session, front.name, cost, is_promised=is_promised)


def _give_back(cost: float, front: Storefront, database: Database, turn: Turn | None = None) -> None:
    with database.transaction() as session:
        give_back(session, front.name, cost, turn)


def _hear(said: Heard, front: Storefront, database: Database) -> None:
    if said.answer is Answer.THROTTLED:
        front.meter.count("rules_429_count_total", shop=front.name)
    with database.transaction() as session:
        before, after = hear(session, front.name, said)
        if has_opened(before, after):
            enqueue(session, [_opened(front.name, after, database_time(session))])


def _said(called: Called[Value] | None, kind: CallKind, cost: float, since: datetime) -> Heard:
    """A call that was broken off says nothing about the shop."""
    if called is None:
        return Heard(None, kind, cost, since)
    if called.failure is None:
        return Heard(Answer.WELL, kind, cost, since, called.bucket)
    if called.is_throttled:
        return Heard(Answer.THROTTLED, kind, cost, since, called.bucket, called.failure.retry_after_seconds)
    was_sent = called.failure.kind is not FailureKind.NETWORK or called.failure.outcome_unknown
    answer = Answer.FAILED if called.failure.retryable else Answer.WELL
    return Heard(answer, kind, cost, since, called.bucket, was_sent=was_sent)


def _opened(shop: str, circuit: Circuit, now: datetime) -> Event:
    until = circuit.until or now
    return Event(
        tenant_id=TENANT,
        key=circuit_key(shop, until),
        name="automation.circuit.opened",
        producer="pricing",
        correlation_id=f"shop-{shop}",
        occurred_at=now,
        payload={"shop": shop, "until": iso(until), "throttles": circuit.throttles, "failures": circuit.failures},
    )
