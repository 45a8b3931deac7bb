"""Calls of the shop at its pace: one call, the catalogue, prices, and the writes of a chunk of
targets."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from random import Random
from typing import TypeVar

from automation_pipeline.core.background import together
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.events import Event
from automation_pipeline.pricing.events import circuit_key
from automation_pipeline.pricing.models.rules import TENANT
from automation_pipeline.pricing.models.shop import (
    CallFailure,
    CallResult,
    CallWithdrawnError,
    CataloguePage,
    FailureKind,
    FailureSignal,
    Price,
    Prices,
    PriceWrite,
    ShopRestingError,
    Written,
    classify_failure,
    price_text,
)
from automation_pipeline.pricing.ports import MAX_PRICES_PER_READ, ApplyContext, Shop, Storefront
from automation_pipeline.pricing.queries.shops import (
    CallRecord,
    CallTurn,
    record_call,
    refund_call,
    reserve_call,
)
from automation_pipeline.pricing.queries.targets import changes_since
from automation_pipeline.pricing.rules.evaluation import used_budget
from automation_pipeline.pricing.rules.pacing import (
    CallKind,
    CallOutcome,
    Circuit,
    concurrency,
    has_opened,
)
from automation_pipeline.pricing.rules.runs import (
    MAX_RETRIES,
    AppliedResult,
    ApplyTerms,
    AttemptProgress,
    GiveUpTarget,
    RetryTarget,
    TargetOutcome,
    WorkTarget,
    decide_after_failed_call,
    decide_before_write,
    decide_retry,
    fail_without_variant,
    requeue_unchanged,
    start_of_day,
)
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue

# A shop that rests may be well again sooner than it said: somebody else's probe.
LOOK_AGAIN_SECONDS = 1.0

Value = TypeVar("Value")


async def call_shop(
    call: Callable[[], Awaitable[CallResult[Value]]],
    cost: float,
    *,
    front: Storefront,
    database: Database,
    kind: CallKind = CallKind.READ,
    is_wanted: Callable[[], Awaitable[bool]] | None = None,
) -> CallResult[Value]:
    """What the call brought, as a value whatever it was. Every process that calls the shop comes
    through here: together they keep its pace. ShopRestingError: it is to be left alone for longer
    than a worker stays. CallWithdrawnError: whoever was asked when the turn came said so."""
    turn = await _wait_for_turn(cost, front, database)
    if is_wanted is not None:
        await _check_wanted(is_wanted, cost, turn, front, database)
    called: CallResult[Value] | None = None
    try:
        called = await _answer(call, front)
        return called
    finally:
        await asyncio.to_thread(
            _record_call, _call_record(called, kind, cost, turn.at), front, database
        )


async def _check_wanted(
    is_wanted: Callable[[], Awaitable[bool]],
    cost: float,
    turn: CallTurn,
    front: Storefront,
    database: Database,
) -> None:
    wanted = False
    try:
        wanted = await is_wanted()
    finally:
        if not wanted:
            await asyncio.to_thread(_refund_call, cost, front, database, turn)
    if not wanted:
        raise CallWithdrawnError("The call is not wanted any more.")


async def _answer(
    call: Callable[[], Awaitable[CallResult[Value]]], front: Storefront
) -> CallResult[Value]:
    try:
        async with asyncio.timeout(front.options.call_seconds):
            return await call()
    except TimeoutError:
        words = f"The shop did not answer within {front.options.call_seconds:g} s."
        return CallResult(failure=classify_failure(FailureSignal(lost=True), words))


async def _wait_for_turn(cost: float, front: Storefront, database: Database) -> CallTurn:
    """The turn of the call, when it has come."""
    promising = asyncio.create_task(
        asyncio.to_thread(_reserve_call, cost, front, database, is_promised=False)
    )
    goes = False
    try:
        turn = await asyncio.shield(promising)
        while turn.seconds > 0:
            if turn.is_resting and turn.seconds > front.options.longest_pause_seconds:
                raise ShopRestingError(
                    f"{front.name} is to be left alone.", retry_after_seconds=turn.seconds
                )
            await asyncio.sleep(
                min(turn.seconds, LOOK_AGAIN_SECONDS) if turn.is_resting else turn.seconds
            )
            turn = await asyncio.to_thread(_reserve_call, cost, front, database, is_promised=True)
        goes = True
        return turn
    finally:
        if not goes and await _was_reserved(promising):
            await asyncio.to_thread(_refund_call, cost, front, database)


async def _was_reserved(promise: asyncio.Task[CallTurn]) -> bool:
    """Known only when it has ended: who is broken off does not stop the thread that promises."""
    await asyncio.wait({promise})
    return not promise.cancelled() and promise.exception() is None


def _reserve_call(
    cost: float, front: Storefront, database: Database, *, is_promised: bool
) -> CallTurn:
    with database.transaction() as session:
        return reserve_call(session, front.name, cost, is_promised=is_promised)


def _refund_call(
    cost: float, front: Storefront, database: Database, turn: CallTurn | None = None
) -> None:
    with database.transaction() as session:
        refund_call(session, front.name, cost, turn)


def _record_call(said: CallRecord, front: Storefront, database: Database) -> None:
    if said.answer is CallOutcome.THROTTLED:
        front.meter.count("rules_429_count_total", shop=front.name)
    with database.transaction() as session:
        before, after = record_call(session, front.name, said)
        if has_opened(before, after):
            enqueue(session, [_circuit_opened(front.name, after, database_time(session))])


def _call_record(
    called: CallResult[Value] | None, kind: CallKind, cost: float, since: datetime
) -> CallRecord:
    """A call that was broken off says nothing about the shop."""
    if called is None:
        return CallRecord(None, kind, cost, since)
    if called.failure is None:
        return CallRecord(CallOutcome.WELL, kind, cost, since, called.bucket)
    if called.is_throttled:
        return CallRecord(
            CallOutcome.THROTTLED,
            kind,
            cost,
            since,
            called.bucket,
            called.failure.retry_after_seconds,
        )
    was_sent = called.failure.kind is not FailureKind.NETWORK or called.failure.outcome_unknown
    answer = CallOutcome.FAILED if called.failure.retryable else CallOutcome.WELL
    return CallRecord(answer, kind, cost, since, called.bucket, was_sent=was_sent)


def _circuit_opened(shop: str, circuit: Circuit, now: datetime) -> Event:
    until = circuit.until or now
    return Event(
        tenant_id=TENANT,
        key=circuit_key(shop, until),
        name="automation.circuit.opened",
        producer="pricing",
        correlation_id=f"shop-{shop}",
        occurred_at=now,
        payload={
            "shop": shop,
            "until": iso(until),
            "throttles": circuit.throttles,
            "failures": circuit.failures,
        },
    )


async def read_catalogue(*, front: Storefront, database: Database) -> AsyncGenerator[CataloguePage]:
    """In the shop's order. A page that fails is asked for again, four times at most and as long as
    a worker stays; then TransientError or PermanentError, in the shop's words."""
    async with front.open() as shop:
        page = await _page(shop, None, front, database)
        yield page
        been: set[str] = set()
        while page.after is not None:
            been.add(page.after)
            page = await _page(shop, page.after, front, database)
            if page.after in been:
                raise PermanentError(
                    f"{front.name} tells of the same page of its catalogue again and again."
                )
            yield page


async def _page(
    shop: Shop, after: str | None, front: Storefront, database: Database
) -> CataloguePage:
    progress, random = AttemptProgress(), Random()
    for calls_left in reversed(range(MAX_RETRIES + 1)):
        called = await call_shop(
            lambda: shop.page(after), shop.costs.page, front=front, database=database
        )
        if called.value is not None:
            return called.value
        if called.failure is None:
            break
        decided = decide_retry(called.failure, progress, random)
        longest = front.options.longest_pause_seconds
        if not isinstance(decided, RetryTarget) or not calls_left or decided.wait_seconds > longest:
            raise _catalogue_error(called.failure)
        progress = decided.progress
        await asyncio.sleep(decided.wait_seconds)
    raise PermanentError(f"{front.name} answered nothing.")


def _catalogue_error(failure: CallFailure) -> TransientError | PermanentError:
    if failure.retryable:
        return TransientError(failure.message, retry_after_seconds=failure.retry_after_seconds)
    return PermanentError(failure.message)


_NOT_THERE = "the variant, or its price, is not in the shop any more"


async def read_prices(
    variant_ids: Sequence[str], *, context: ApplyContext
) -> dict[str, Price | str]:
    """By variant; where it could not be read, why not. ShopRestingError: the shop is to be left
    alone for longer than a worker stays, and nothing is known."""
    reading = _Reading(context)
    distinct = list(dict.fromkeys(variant_ids))
    lots = iter(
        [
            distinct[at : at + MAX_PRICES_PER_READ]
            for at in range(0, len(distinct), MAX_PRICES_PER_READ)
        ]
    )
    async with together() as group:
        for _ in range(context.front.options.calls_at_once):
            group.create_task(reading.go_through(lots))
    return reading.found


class _Reading:
    def __init__(self, context: ApplyContext) -> None:
        self._context = context
        self._refused: CallFailure | None = None
        self.found: dict[str, Price | str] = {}

    async def go_through(self, lots: Iterator[Sequence[str]]) -> None:
        for lot in lots:
            failure = self._refused or await self._read(lot)
            if failure is not None:
                self.found |= dict.fromkeys(lot, failure.message)
                self._refused = failure if failure.is_critical else self._refused

    async def _read(self, lot: Sequence[str]) -> CallFailure | None:
        """Why it failed in the end."""
        context, progress, waited = self._context, AttemptProgress(), 0.0
        while True:
            called = await call_shop(
                lambda: context.shop.prices(lot),
                context.shop.costs.reading(len(lot)),
                front=context.front,
                database=context.database,
            )
            if called.failure is None:
                prices = called.value or {}
                self.found |= {variant_id: prices.get(variant_id, _NOT_THERE) for variant_id in lot}
                return None
            next_try = decide_retry(called.failure, progress, context.random)
            if (
                isinstance(next_try, GiveUpTarget)
                or waited + next_try.wait_seconds > context.front.options.longest_pause_seconds
            ):
                return called.failure
            waited, progress = waited + next_try.wait_seconds, next_try.progress
            await asyncio.sleep(next_try.wait_seconds)


# A price that was read so long ago may be another by now: it is read again before it is written
# over.
LONGEST_READ_SECONDS = 15.0

Settle = Callable[[Sequence[TargetOutcome]], Awaitable[None]]
ToWrite = tuple[WorkTarget, Price]


@dataclass(frozen=True)
class ApplyHalt:
    """Why nothing more is to be called: the shop would refuse everything, or wants to be left alone
    for so long."""

    critical: CallFailure | None = None
    resting_seconds: float = 0.0


async def apply_chunk(
    targets: Sequence[WorkTarget],
    terms: ApplyTerms,
    *,
    context: ApplyContext,
    settle: Settle,
    is_wanted: Callable[[], Awaitable[bool]],
) -> ApplyHalt | None:
    """Each target is settled once. Those that nothing was tried for go back as they were: after a
    halt, or when they are not wanted any more, which is asked right before each write."""
    chunk = _Chunk(terms, context, settle, is_wanted)
    await chunk.work(targets)
    return chunk.halt


class _Chunk:
    def __init__(
        self,
        terms: ApplyTerms,
        context: ApplyContext,
        settle: Settle,
        is_wanted: Callable[[], Awaitable[bool]],
    ) -> None:
        self._terms, self._context, self._is_wanted = terms, context, is_wanted
        self._read_at, self._ends = 0.0, False
        self._settle_now, self._ready, self._settling = (
            settle,
            list[TargetOutcome](),
            asyncio.Lock(),
        )
        self._throttles = 0
        self.halt: ApplyHalt | None = None

    async def work(self, targets: Sequence[WorkTarget]) -> None:
        await self._settle([fail_without_variant(one) for one in targets if one.variant_id is None])
        left = [one for one in targets if one.variant_id is not None]
        called = await self._read(left) if left else CallResult[Prices](value={})
        if called is None:
            return
        if called.value is None:
            assert called.failure is not None  # noqa: S101  one of the two is there
            await self._failed(left, replace(called.failure, outcome_unknown=False))
            return
        to_write, settled = await asyncio.to_thread(self._decide, left, called.value)
        await self._settle(settled)
        await self._write_all(to_write)

    async def _read(self, targets: Sequence[WorkTarget]) -> CallResult[Prices] | None:
        shop, ids = self._context.shop, [str(one.variant_id) for one in targets]
        cost = shop.costs.reading(len(ids))
        return await self._call(
            CallKind.READ, lambda: shop.prices(ids), cost, targets, self._begins_reading
        )

    def _decide(
        self, targets: Sequence[WorkTarget], prices: Prices
    ) -> tuple[list[ToWrite], list[TargetOutcome]]:
        to_write, settled = list[ToWrite](), list[TargetOutcome]()
        used = self._used([str(one.variant_id) for one in targets])
        for target in targets:
            variant_id = str(target.variant_id)
            seen = prices.get(variant_id)
            decided = decide_before_write(
                target, seen, used.get(variant_id, Decimal(0)), self._terms
            )
            if decided is not None:
                settled.append(decided)
            elif seen is not None:
                to_write.append((replace(target, outcome_unknown=False), seen))
        return to_write, settled

    def _used(self, variant_ids: Sequence[str]) -> dict[str, Decimal]:
        policy, front = self._terms.policy, self._context.front
        if policy is None or policy.daily_change_budget_pct is None:
            return {}
        with self._context.database.reading() as session:
            since = start_of_day(database_time(session), front.options.time_zone)
            changes = changes_since(session, front.name, variant_ids, since)
        return {variant_id: used_budget(pairs) for variant_id, pairs in changes.items()}

    async def _write_all(self, to_write: Sequence[ToWrite]) -> None:
        products = [
            list(group) for _, group in groupby(to_write, key=lambda one: one[0].product_id)
        ]
        full = self._context.front.options.calls_at_once
        waiting = iter(products)
        async with together() as group:
            for place in range(min(full, len(products))):
                group.create_task(self._write_some(waiting, place, full))

    async def _write_some(self, waiting: Iterator[list[ToWrite]], place: int, full: int) -> None:
        """Where the shop refuses again and again, some leave the rest to the others: fewer calls at
        once."""
        for product in waiting:
            if self._goes_on:
                await self._write(product)
            else:
                await self._settle(
                    [requeue_unchanged(target, self._resting) for target, _ in product]
                )
            if place >= concurrency(self._throttles, full):
                return

    async def _write(self, product: Sequence[ToWrite]) -> None:
        shop, targets = self._context.shop, [target for target, _ in product]
        writes = [
            PriceWrite(str(one.variant_id), one.after, one.writes_compare_at) for one in targets
        ]
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
        await self._settle(
            [self._told(target, seen, called, milliseconds) for target, seen in product]
        )

    def _told(
        self, target: WorkTarget, seen: Price, called: CallResult[Written], milliseconds: int
    ) -> TargetOutcome:
        said = (called.value or {}).get(str(target.variant_id))
        if isinstance(said, CallFailure):
            return self._after_failure([target], said)[0]
        if said is not None and said.stands_as(
            target.after, with_compare_at=target.writes_compare_at
        ):
            return AppliedResult(
                target, seen, request_id=called.request_id, duration_ms=milliseconds
            )
        words = (
            "nothing of the variant"
            if said is None
            else f"{price_text(said.unit_amount, said.currency)}"
        )
        silence = classify_failure(
            FailureSignal(lost=True), f"The shop's answer to the write says {words}."
        )
        return self._after_failure([target], silence)[0]

    async def _call(
        self,
        kind: CallKind,
        call: Callable[[], Awaitable[CallResult[Value]]],
        cost: float,
        targets: Sequence[WorkTarget],
        is_wanted: Callable[[], Awaitable[bool]],
    ) -> CallResult[Value] | None:
        """None: it was not made, and the targets wait."""
        context = self._context
        try:
            called = await call_shop(
                call,
                cost,
                front=context.front,
                database=context.database,
                kind=kind,
                is_wanted=is_wanted,
            )
        except CallWithdrawnError:
            await self._settle([requeue_unchanged(target) for target in targets])
            return None
        except ShopRestingError as rest:
            self.halt = self.halt or ApplyHalt(resting_seconds=rest.retry_after_seconds or 0.0)
            await self._settle([requeue_unchanged(target, self._resting) for target in targets])
            return None
        if kind is CallKind.WRITE:
            self._throttles = self._throttles + 1 if called.is_throttled else 0
        return called

    async def _failed(self, targets: Sequence[WorkTarget], failure: CallFailure) -> None:
        if failure.is_critical:
            self.halt = ApplyHalt(critical=failure)
        await self._settle(self._after_failure(targets, failure))

    def _after_failure(
        self, targets: Sequence[WorkTarget], failure: CallFailure
    ) -> list[TargetOutcome]:
        """Targets that failed together are due together: the same luck for all, so that they stay
        one call."""
        luck = self._context.random.getrandbits(64)
        return [decide_after_failed_call(target, failure, Random(luck)) for target in targets]

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

    async def _settle(self, settled: Sequence[TargetOutcome]) -> None:
        """What comes together while another lot is written down goes with the next."""
        self._ready += settled
        async with self._settling:
            lot, self._ready = self._ready, []
            if lot:
                await self._settle_now(lot)
