"""Apply some targets of a run: read what the shop has now, decide, write product by product."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby
from random import Random
from typing import TypeVar

from automation_pipeline.core.tasks import together
from automation_pipeline.pricing.domain.circuit import CallKind, concurrency
from automation_pipeline.pricing.domain.failures import Failure, Signal, classified
from automation_pipeline.pricing.domain.money import Price, in_words
from automation_pipeline.pricing.domain.policy import used_today
from automation_pipeline.pricing.domain.shop_calls import (
    Called,
    CallNotWantedError,
    Prices,
    PriceWrite,
    ShopRestingError,
    Written,
)
from automation_pipeline.pricing.domain.work import (
    Applied,
    Settled,
    Terms,
    WorkTarget,
    after_failed_call,
    before_writing,
    day_began,
    deferred,
    without_variant,
)
from automation_pipeline.pricing.ports import Desk
from automation_pipeline.pricing.stages.call_shop import call_shop
from automation_pipeline.pricing.store.chunks import changes_since
from automation_pipeline.storage.instants import database_time

# A price that was read so long ago may be another by now: it is read again before it is written over.
LONGEST_READ_SECONDS = 15.0

Settle = Callable[[Sequence[Settled]], Awaitable[None]]
ToWrite = tuple[WorkTarget, Price]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Halt:
    """Why nothing more is to be called: the shop would refuse everything, or wants to be left alone for so long."""

    critical: Failure | None = None
    resting_seconds: float = 0.0


async def apply_chunk(
    targets: Sequence[WorkTarget],
    terms: Terms,
    *,
    desk: Desk,
    settle: Settle,
    is_wanted: Callable[[], Awaitable[bool]],
) -> Halt | None:
    """Each target is settled once. Those that nothing was tried for go back as they were: after a halt, or when they
    are not wanted any more, which is asked right before each write."""
    chunk = _Chunk(terms, desk, settle, is_wanted)
    await chunk.work(targets)
    return chunk.halt


class _Chunk:
    def __init__(self, terms: Terms, desk: Desk, settle: Settle, is_wanted: Callable[[], Awaitable[bool]]) -> None:
        self._terms, self._desk, self._is_wanted = terms, desk, is_wanted
        self._read_at, self._ends = 0.0, False
        self._settle_now, self._ready, self._settling = settle, list[Settled](), asyncio.Lock()
        self._throttles = 0
        self.halt: Halt | None = None

    async def work(self, targets: Sequence[WorkTarget]) -> None:
        await self._settle([without_variant(one) for one in targets if one.variant_id is None])
        left = [one for one in targets if one.variant_id is not None]
        called = await self._read(left) if left else Called[Prices](value={})
        if called is None:
            return
        if called.value is None:
            assert called.failure is not None  # noqa: S101  one of the two is there
            await self._failed(left, replace(called.failure, outcome_unknown=False))
            return
        to_write, settled = await asyncio.to_thread(self._decide, left, called.value)
        await self._settle(settled)
        await self._write_all(to_write)

    async def _read(self, targets: Sequence[WorkTarget]) -> Called[Prices] | None:
        shop, ids = self._desk.shop, [str(one.variant_id) for one in targets]
        cost = shop.costs.reading(len(ids))
        return await self._call(CallKind.READ, lambda: shop.prices(ids), cost, targets, self._begins_reading)

    def _decide(self, targets: Sequence[WorkTarget], prices: Prices) -> tuple[list[ToWrite], list[Settled]]:
        to_write, settled = list[ToWrite](), list[Settled]()
        used = self._used([str(one.variant_id) for one in targets])
        for target in targets:
            variant_id = str(target.variant_id)
            seen = prices.get(variant_id)
            decided = before_writing(target, seen, used.get(variant_id, Decimal(0)), self._terms)
            if decided is not None:
                settled.append(decided)
            elif seen is not None:
                to_write.append((replace(target, outcome_unknown=False), seen))
        return to_write, settled

    def _used(self, variant_ids: Sequence[str]) -> dict[str, Decimal]:
        policy, front = self._terms.policy, self._desk.front
        if policy is None or policy.daily_change_budget_pct is None:
            return {}
        with self._desk.database.reading() as session:
            since = day_began(database_time(session), front.knobs.time_zone)
            changes = changes_since(session, front.name, variant_ids, since)
        return {variant_id: used_today(pairs) for variant_id, pairs in changes.items()}

    async def _write_all(self, to_write: Sequence[ToWrite]) -> None:
        products = [list(group) for _, group in groupby(to_write, key=lambda one: one[0].product_id)]
        full = self._desk.front.knobs.calls_at_once
        waiting = iter(products)
        async with together() as group:
            for place in range(min(full, len(products))):
                group.create_task(self._write_some(waiting, place, full))

    async def _write_some(self, waiting: Iterator[list[ToWrite]], place: int, full: int) -> None:
        """Where the shop refuses again and again, some leave the rest to the others: fewer calls at once."""
        for product in waiting:
            if self._goes_on:
                await self._write(product)
            else:
                await self._settle([deferred(target, self._resting) for target, _ in product])
            if place >= concurrency(self._throttles, full):
                return

    async def _write(self, product: Sequence[ToWrite]) -> None:
        shop, targets = self._desk.shop, [target for target, _ in product]
        writes = [PriceWrite(str(one.variant_id), one.after, one.writes_compare_at) for one in targets]
        began = time.monotonic()
        called = await self._call(
            CallKind.WRITE,
            lambda: shop.write(targets[0].product_id, writes),
            shop.costs.write,
            targets,
            self._is_still_wanted,
        )
        if called is None:
            return
        if called.value is None:
            assert called.failure is not None  # noqa: S101  one of the two is there
            await self._failed(targets, called.failure)
            return
        milliseconds = round((time.monotonic() - began) * 1000)
        await self._settle([self._told(target, seen, called, milliseconds) for target, seen in product])

    def _told(self, target: WorkTarget, seen: Price, called: Called[Written], milliseconds: int) -> Settled:
        said = (called.value or {}).get(str(target.variant_id))
        if isinstance(said, Failure):
            return self._after_failure([target], said)[0]
        if said is not None and said.stands_as(target.after, with_compare_at=target.writes_compare_at):
            return Applied(target, seen, request_id=called.request_id, duration_ms=milliseconds)
        words = "nothing of the variant" if said is None else f"{in_words(said.unit_amount, said.currency)}"
        silence = classified(Signal(lost=True), f"The shop's answer to the write says {words}.")
        return self._after_failure([target], silence)[0]

    async def _call(
        self,
        kind: CallKind,
        call: Callable[[], Awaitable[Called[Value]]],
        cost: float,
        targets: Sequence[WorkTarget],
        is_wanted: Callable[[], Awaitable[bool]],
    ) -> Called[Value] | None:
        """None: it was not made, and the targets wait."""
        desk = self._desk
        try:
            called = await call_shop(
                call, cost, front=desk.front, database=desk.database, kind=kind, is_wanted=is_wanted
            )
        except CallNotWantedError:
            await self._settle([deferred(target) for target in targets])
            return None
        except ShopRestingError as rest:
            self.halt = self.halt or Halt(resting_seconds=rest.retry_after_seconds or 0.0)
            await self._settle([deferred(target, self._resting) for target in targets])
            return None
        if kind is CallKind.WRITE:
            self._throttles = self._throttles + 1 if called.is_throttled else 0
        return called

    async def _failed(self, targets: Sequence[WorkTarget], failure: Failure) -> None:
        if failure.is_critical:
            self.halt = Halt(critical=failure)
        await self._settle(self._after_failure(targets, failure))

    def _after_failure(self, targets: Sequence[WorkTarget], failure: Failure) -> list[Settled]:
        """Targets that failed together are due together: the same luck for all, so that they stay one call."""
        luck = self._desk.random.getrandbits(64)
        return [after_failed_call(target, failure, Random(luck)) for target in targets]

    async def _begins_reading(self) -> bool:
        """From now on the prices grow old."""
        self._read_at = time.monotonic()
        return True

    async def _is_still_wanted(self) -> bool:
        self._ends = self._ends or not await self._is_wanted()
        return not self._ends and time.monotonic() - self._read_at <= LONGEST_READ_SECONDS

    @property
    def _goes_on(self) -> bool:
        return self.halt is None and not self._ends

    @property
    def _resting(self) -> float:
        return self.halt.resting_seconds if self.halt else 0.0

    async def _settle(self, settled: Sequence[Settled]) -> None:
        """What comes together while another lot is written down goes with the next."""
        self._ready += settled
        async with self._settling:
            lot, self._ready = self._ready, []
            if lot:
                await self._settle_now(lot)
