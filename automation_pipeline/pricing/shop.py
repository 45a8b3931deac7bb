"""Calls of the shop at its pace: the catalogue, prices, and the writes of a run; pause and resume."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from random import Random
from typing import Protocol, TypeVar

from automation_pipeline.core.background import together
from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import InvalidInputError, PermanentError, TransientError
from automation_pipeline.core.events import Event
from automation_pipeline.pricing.events import circuit_key
from automation_pipeline.pricing.models.rules import TENANT, Policy
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
    ShopShown,
    classify_failure,
    price_text,
)
from automation_pipeline.pricing.ports import MAX_PRICES_PER_READ, ApplyContext, PricingContext
from automation_pipeline.pricing.queries.runs import file_run_requests, runs_without_worker
from automation_pipeline.pricing.queries.shops import (
    CallRecord,
    CallTurn,
    close_circuit,
    record_call,
    refund_call,
    reserve_call,
    set_pause,
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
    AppliedResult,
    ApplyTerms,
    AttemptProgress,
    TargetOutcome,
    WorkTarget,
    decide_after_failed_call,
    decide_before_write,
    decide_retry,
    fail_without_variant,
    requeue_unchanged,
    start_of_day,
)
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import database_time

# A probe of another process may close the circuit before its pause is over.
LOOK_AGAIN_SECONDS = 1.0

Value = TypeVar("Value")


async def call_shop(
    call: Callable[[], Awaitable[CallResult[Value]]],
    cost: float,
    context: PricingContext,
    *,
    kind: CallKind = CallKind.READ,
    is_wanted: Callable[[], Awaitable[bool]] | None = None,
) -> CallResult[Value]:
    """Make the call when the rate limit allows it. All calls of all processes pass here, so that
    together they keep the shop's rate limit. `is_wanted` is evaluated just before the call;
    CallWithdrawnError: it returned False. ShopRestingError: the shop must not be called for longer
    than a worker waits."""
    turn = await _wait_for_turn(cost, context)
    wanted = False
    try:
        wanted = is_wanted is None or await is_wanted()
    finally:
        if not wanted:
            await _transact(context, lambda session, shop: refund_call(session, shop, cost, turn))
    if not wanted:
        raise CallWithdrawnError("The call is no longer needed.")
    result: CallResult[Value] | None = None
    seconds = context.storefront.options.call_seconds
    try:
        try:
            async with asyncio.timeout(seconds):
                result = await call()
        except TimeoutError:
            reason = f"The shop did not answer within {seconds:g} s."
            result = CallResult(failure=classify_failure(FailureSignal(lost=True), reason))
        return result
    finally:
        await _record(_call_record(result, kind, cost, turn.at), context)


async def _wait_for_turn(cost: float, context: PricingContext) -> CallTurn:
    def reserve(session: Session, shop: str) -> CallTurn:
        return reserve_call(session, shop, cost, is_reserved=False)

    reserving = asyncio.create_task(_transact(context, reserve))
    goes = False
    try:
        turn = await asyncio.shield(reserving)
        while turn.seconds > 0:
            if not turn.is_resting:
                await asyncio.sleep(turn.seconds)
            elif turn.seconds > context.storefront.options.longest_pause_seconds:
                raise ShopRestingError(
                    f"{context.storefront.name} must not be called now.",
                    retry_after_seconds=turn.seconds,
                )
            else:
                await asyncio.sleep(min(turn.seconds, LOOK_AGAIN_SECONDS))
            turn = await _transact(
                context, lambda session, shop: reserve_call(session, shop, cost, is_reserved=True)
            )
        goes = True
        return turn
    finally:
        if not goes:
            # Cancellation does not stop the thread that reserves: wait for its result.
            await asyncio.wait({reserving})
            if not reserving.cancelled() and reserving.exception() is None:
                await _transact(context, lambda session, shop: refund_call(session, shop, cost))


async def _record(call: CallRecord, context: PricingContext) -> None:
    if call.answer is CallOutcome.THROTTLED:
        context.storefront.meter.count("rules_429_count_total", shop=context.storefront.name)

    def record(session: Session, shop: str) -> None:
        before, after = record_call(session, shop, call)
        if has_opened(before, after):
            enqueue(session, [_circuit_opened(shop, after, database_time(session))])

    await _transact(context, record)


async def _transact(context: PricingContext, change: Callable[[Session, str], Value]) -> Value:
    """Run a transaction about the shop in a thread."""

    def transact() -> Value:
        with context.database.transaction() as session:
            return change(session, context.storefront.name)

    return await asyncio.to_thread(transact)


def _call_record(
    result: CallResult[Value] | None, kind: CallKind, cost: float, since: datetime
) -> CallRecord:
    """A cancelled call is no evidence about the shop."""
    if result is None:
        return CallRecord(None, kind, cost, since)
    failure = result.failure
    if failure is None:
        return CallRecord(CallOutcome.WELL, kind, cost, since, result.bucket)
    was_sent = failure.kind is not FailureKind.NETWORK or failure.outcome_unknown
    if result.is_throttled:
        retry_after = failure.retry_after_seconds
        throttled = CallOutcome.THROTTLED
        return CallRecord(throttled, kind, cost, since, result.bucket, retry_after)
    answer = CallOutcome.FAILED if failure.retryable else CallOutcome.WELL
    return CallRecord(answer, kind, cost, since, result.bucket, was_sent=was_sent)


def _circuit_opened(shop: str, circuit: Circuit, now: datetime) -> Event:
    until = circuit.until or now
    payload: dict[str, object] = {
        "shop": shop,
        "until": iso(until),
        "throttles": circuit.throttles,
        "failures": circuit.failures,
    }
    key, name = circuit_key(shop, until), "automation.circuit.opened"
    return Event(TENANT, key, name, "pricing", f"shop-{shop}", now, payload)


async def _call_with_retries(
    call: Callable[[], Awaitable[CallResult[Value]]],
    cost: float,
    context: PricingContext,
    random: Random,
) -> CallResult[Value]:
    """Make a read, retried for as long as a worker waits. The last failure is the result."""
    progress, waited = AttemptProgress(), 0.0
    while True:
        result = await call_shop(call, cost, context)
        if result.failure is None:
            return result
        retry = decide_retry(result.failure, progress, random)
        longest = context.storefront.options.longest_pause_seconds
        if retry is None or waited + retry.wait_seconds > longest:
            return result
        waited, progress = waited + retry.wait_seconds, retry.progress
        await asyncio.sleep(retry.wait_seconds)


async def read_catalogue(context: PricingContext) -> AsyncGenerator[CataloguePage]:
    """The pages in the shop's order. TransientError or PermanentError: a page cannot be read."""
    random, seen = Random(), set[str]()
    name, after = context.storefront.name, None
    async with context.storefront.open() as shop:
        while True:
            cursor = after
            result = await _call_with_retries(
                lambda cursor=cursor: shop.page(cursor), shop.costs.page, context, random
            )
            failure, page = result.failure, result.value
            if failure is not None and failure.retryable:
                raise TransientError(
                    failure.message, retry_after_seconds=failure.retry_after_seconds
                )
            if page is None:
                reason = failure.message if failure else f"{name} answered nothing."
                raise PermanentError(reason)
            if page.after in seen:
                raise PermanentError(f"{name} returns the same page of its catalogue repeatedly.")
            yield page
            after = page.after
            if after is None:
                return
            seen.add(after)


async def read_prices(variant_ids: Sequence[str], context: ApplyContext) -> dict[str, Price | str]:
    """By variant, its price, or the reason why it could not be read. ShopRestingError: the shop
    must not be called for longer than a worker waits, and no price is known."""
    reader = _PriceReader(context)
    distinct, size = list(dict.fromkeys(variant_ids)), MAX_PRICES_PER_READ
    lots = iter([distinct[start : start + size] for start in range(0, len(distinct), size)])
    async with together() as group:
        for _ in range(context.storefront.options.calls_at_once):
            group.create_task(reader.read(lots))
    return reader.found


class _PriceReader:
    def __init__(self, context: ApplyContext) -> None:
        self._context = context
        self._critical: CallFailure | None = None
        self.found: dict[str, Price | str] = {}

    async def read(self, lots: Iterator[Sequence[str]]) -> None:
        """After a critical failure no more batches are read."""
        shop, missing = self._context.shop, "the variant, or its price, is no longer in the shop"
        for lot in lots:
            failure = self._critical
            prices: Prices = {}
            if failure is None:
                result = await _call_with_retries(
                    lambda lot=lot: shop.prices(lot),
                    shop.costs.reading(len(lot)),
                    self._context,
                    self._context.random,
                )
                failure, prices = result.failure, result.value or {}
            if failure is None:
                self.found |= {one: prices.get(one, missing) for one in lot}
            else:
                self.found |= dict.fromkeys(lot, failure.message)
                if failure.is_critical:
                    self._critical = failure


def used_budgets(
    policy: Policy | None,
    variant_ids: Sequence[str],
    context: PricingContext,
    now: datetime | None = None,
) -> dict[str, Decimal]:
    """By variant, the used part of its daily budget. Only a policy with a budget needs it. `now`
    defaults to the database's time."""
    if policy is None or policy.daily_change_budget_pct is None or not variant_ids:
        return {}
    storefront = context.storefront
    with context.database.reading() as session:
        since = start_of_day(now or database_time(session), storefront.options.time_zone)
        changes = changes_since(session, storefront.name, variant_ids, since)
    return {variant_id: used_budget(pairs) for variant_id, pairs in changes.items()}


# An older price is read again before it is overwritten.
LONGEST_READ_SECONDS = 15.0


class ChunkOwner(Protocol):
    """The worker of the targets."""

    def keep(self) -> bool:
        """Extend the claim; return whether the targets must still be written."""
        ...

    def save(self, outcomes: Sequence[TargetOutcome]) -> None: ...


@dataclass(frozen=True)
class ApplyHalt:
    """Why no more calls are made: the shop would refuse them all, or must not be called for that time."""

    critical: CallFailure | None = None
    resting_seconds: float = 0.0


async def apply_chunk(
    targets: Sequence[WorkTarget], terms: ApplyTerms, owner: ChunkOwner, context: ApplyContext
) -> ApplyHalt | None:
    """Each target gets one outcome. A target that is not tried, after a halt or because it is no
    longer needed, is requeued unchanged."""
    chunk = _Chunk(terms, owner, context)
    await chunk.apply(targets)
    return chunk.halt


class _Chunk:
    def __init__(self, terms: ApplyTerms, owner: ChunkOwner, context: ApplyContext) -> None:
        self._terms, self._owner, self._context = terms, owner, context
        self._read_at, self._is_over, self._throttles = 0.0, False, 0
        self._unsaved, self._saving = list[TargetOutcome](), asyncio.Lock()
        self.halt: ApplyHalt | None = None

    async def apply(self, targets: Sequence[WorkTarget]) -> None:
        await self._save([fail_without_variant(one) for one in targets if one.variant_id is None])
        left = [one for one in targets if one.variant_id is not None]
        if not left:
            return
        shop, ids = self._context.shop, [str(one.variant_id) for one in left]
        result = await self._call(
            CallKind.READ,
            lambda: shop.prices(ids),
            shop.costs.reading(len(ids)),
            left,
            self._begins_reading,
        )
        if result is None:
            return
        if result.failure is not None:
            await self._fail(left, replace(result.failure, outcome_unknown=False))
            return
        to_write = await self._decide(left, result.value or {})
        products = [list(group) for _, group in groupby(to_write, lambda one: one[0].product_id)]
        full, waiting = self._context.storefront.options.calls_at_once, iter(products)
        async with together() as group:
            for place in range(min(full, len(products))):
                group.create_task(self._write_some(waiting, place, full))

    async def _decide(
        self, targets: Sequence[WorkTarget], prices: Prices
    ) -> list[tuple[WorkTarget, Price]]:
        """Return the targets that must be written, with their current prices."""
        variants = [str(one.variant_id) for one in targets]
        used = await asyncio.to_thread(used_budgets, self._terms.policy, variants, self._context)
        to_write, outcomes = list[tuple[WorkTarget, Price]](), list[TargetOutcome]()
        for target in targets:
            variant_id = str(target.variant_id)
            seen = prices.get(variant_id)
            spent = used.get(variant_id, Decimal(0))
            outcome = decide_before_write(target, seen, spent, self._terms)
            if outcome is not None:
                outcomes.append(outcome)
            elif seen is not None:
                to_write.append((replace(target, outcome_unknown=False), seen))
        await self._save(outcomes)
        return to_write

    async def _write_some(
        self, products: Iterator[list[tuple[WorkTarget, Price]]], place: int, full: int
    ) -> None:
        """While the shop refuses calls, the tasks above the reduced concurrency end."""
        for product in products:
            if self.halt is None and not self._is_over:
                await self._write(product)
            else:
                await self._requeue([target for target, _ in product])
            if place >= concurrency(self._throttles, full):
                return

    async def _write(self, product: Sequence[tuple[WorkTarget, Price]]) -> None:
        shop, targets = self._context.shop, [target for target, _ in product]
        writes = [
            PriceWrite(str(one.variant_id), one.after, one.writes_compare_at) for one in targets
        ]
        began = time.monotonic()
        result = await self._call(
            CallKind.WRITE,
            lambda: shop.write(targets[0].product_id, writes),
            shop.costs.write,
            targets,
            self._may_write,
        )
        if result is None:
            return
        if result.failure is not None:
            await self._fail(targets, result.failure)
            return
        written, request_id = result.value or {}, result.request_id
        milliseconds = round((time.monotonic() - began) * 1000)
        await self._save(
            [
                self._outcome(
                    target, seen, written.get(str(target.variant_id)), request_id, milliseconds
                )
                for target, seen in product
            ]
        )

    def _outcome(
        self,
        target: WorkTarget,
        seen: Price,
        written: Price | CallFailure | None,
        request_id: str | None,
        milliseconds: int,
    ) -> TargetOutcome:
        if isinstance(written, CallFailure):
            return decide_after_failed_call(target, written, self._context.random)
        if written is None:
            answer = "nothing about the variant"
        elif written.stands_as(target.after, with_compare_at=target.writes_compare_at):
            return AppliedResult(target, seen, request_id=request_id, duration_ms=milliseconds)
        else:
            answer = price_text(written.unit_amount, written.currency)
        lost, reason = (
            FailureSignal(lost=True),
            f"The shop's answer to the write contains {answer}.",
        )
        return decide_after_failed_call(
            target, classify_failure(lost, reason), self._context.random
        )

    async def _call(
        self,
        kind: CallKind,
        call: Callable[[], Awaitable[CallResult[Value]]],
        cost: float,
        targets: Sequence[WorkTarget],
        is_wanted: Callable[[], Awaitable[bool]],
    ) -> CallResult[Value] | None:
        """None: the call was not made, and the targets are requeued."""
        try:
            result = await call_shop(call, cost, self._context, kind=kind, is_wanted=is_wanted)
        except CallWithdrawnError:
            await self._save([requeue_unchanged(target) for target in targets])
            return None
        except ShopRestingError as rest:
            self.halt = self.halt or ApplyHalt(resting_seconds=rest.retry_after_seconds or 0.0)
            await self._requeue(targets)
            return None
        if kind is CallKind.WRITE:
            self._throttles = self._throttles + 1 if result.is_throttled else 0
        return result

    async def _fail(self, targets: Sequence[WorkTarget], failure: CallFailure) -> None:
        """Targets that fail together get the same due time, so that they stay one call."""
        if failure.is_critical:
            self.halt = ApplyHalt(critical=failure)
        seed = self._context.random.getrandbits(64)
        await self._save([decide_after_failed_call(one, failure, Random(seed)) for one in targets])

    async def _requeue(self, targets: Sequence[WorkTarget]) -> None:
        seconds = self.halt.resting_seconds if self.halt else 0.0
        await self._save([requeue_unchanged(target, seconds) for target in targets])

    async def _begins_reading(self) -> bool:
        self._read_at = time.monotonic()
        return True

    async def _may_write(self) -> bool:
        self._is_over = self._is_over or not await asyncio.to_thread(self._owner.keep)
        return not self._is_over and time.monotonic() - self._read_at <= LONGEST_READ_SECONDS

    async def _save(self, outcomes: Sequence[TargetOutcome]) -> None:
        """Outcomes that arrive during a save are saved together afterwards."""
        self._unsaved += outcomes
        async with self._saving:
            lot, self._unsaved = self._unsaved, []
            if lot:
                await asyncio.to_thread(self._owner.save, lot)


MAX_REASON_LENGTH = 1000


def pause_shop(
    shop: str, *, database: Database, actor: str, reason: str | None = None
) -> ShopShown:
    """Workers stop before their next writes. A repeated pause keeps the first start and takes the
    newest reason."""
    if reason is not None and len(reason) > MAX_REASON_LENGTH:
        fault = f"must have at most {MAX_REASON_LENGTH} characters"
        raise InvalidInputError("Invalid pause data", (("reason", fault),))
    with database.transaction() as session:
        return set_pause(session, shop, by=actor, reason=reason)


def resume_shop(shop: str, *, database: Database, clock: Clock) -> ShopShown:
    """Resume the runs of the shop. An open circuit is closed."""
    with database.transaction() as session:
        close_circuit(session, shop)
        resumed = set_pause(session, shop, by=None, reason=None)
        session.flush()
        file_run_requests(session, runs_without_worker(session, shop=shop), clock.now())
        return resumed
