"""Calls of the shop at its pace: the catalogue and prices; pause and resume."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TypeVar

from sqlalchemy import select

from automation_pipeline.core.background import together
from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import InvalidInputError, PermanentError, TransientError
from automation_pipeline.core.events import Event
from automation_pipeline.pricing.events import circuit_key
from automation_pipeline.pricing.models.rules import TENANT, Policy
from automation_pipeline.pricing.models.shop import (
    BucketShown,
    BucketStatus,
    CallFailure,
    CallResult,
    CallWithdrawnError,
    CataloguePage,
    CircuitShown,
    CircuitState,
    FailureKind,
    FailureSignal,
    Price,
    Prices,
    ShopRestingError,
    ShopShown,
    classify_failure,
)
from automation_pipeline.pricing.ports import MAX_PRICES_PER_READ, ApplyContext, PricingContext
from automation_pipeline.pricing.queries.runs import file_run_requests, runs_without_worker
from automation_pipeline.pricing.queries.targets import changes_since
from automation_pipeline.pricing.rules.evaluation import used_budget
from automation_pipeline.pricing.rules.pacing import (
    CallKind,
    CallOutcome,
    Circuit,
    LeakyBucket,
    NotBefore,
    Streak,
    after_answer,
    default_bucket,
    has_opened,
    refund_points,
    request_permit,
    reserve_points,
    sync_bucket,
    without_probe,
)
from automation_pipeline.pricing.rules.runs import AttemptProgress, decide_retry, start_of_day
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import database_time, insert_into

MAX_REFUSALS = 100


@dataclass(frozen=True)
class CallTurn:
    """The call may start that many seconds after `at`; 0: now. `is_resting`: the shop must not be called."""

    at: datetime
    seconds: float
    is_resting: bool
    circuit: Circuit
    is_probe: bool = False


def reserve_call(session: Session, shop: str, cost: float, *, is_reserved: bool) -> CallTurn:
    """Reserve the points, unless they are already reserved, and return when the call may start."""
    row, now = _locked_row(session, shop), database_time(session)
    wait = 0.0
    if not is_reserved:
        left, wait = reserve_points(_bucket(row), cost, now)
        _save_bucket(row, left)
    permission = request_permit(_circuit(row), now)
    if isinstance(permission, NotBefore):
        rest = (permission.at - now).total_seconds()
        return CallTurn(now, max(wait, rest), is_resting=True, circuit=_circuit(row))
    if wait <= 0:
        _save_circuit(row, permission.circuit)
    is_probe = permission.is_probe and wait <= 0
    return CallTurn(now, wait, is_resting=False, circuit=permission.circuit, is_probe=is_probe)


def refund_call(session: Session, shop: str, cost: float, turn: CallTurn | None = None) -> None:
    """Refund the points of a call that is not made. With its `turn`, the next call takes over its probe."""
    row, now = _locked_row(session, shop), database_time(session)
    _save_bucket(row, refund_points(_bucket(row), cost, now))
    if turn is not None and turn.is_probe:
        _save_circuit(row, without_probe(_circuit(row), turn.circuit, now))


@dataclass(frozen=True)
class CallRecord:
    """`answer` is None for a cancelled call; `since` is its start. A call that was not sent has no cost."""

    answer: CallOutcome | None
    kind: CallKind
    cost: float
    since: datetime
    bucket: BucketStatus | None = None
    retry_after_seconds: float | None = None
    was_sent: bool = True


def record_call(session: Session, shop: str, call: CallRecord) -> tuple[Circuit, Circuit]:
    """Record the call, and return the circuit before and after the answer."""
    row, now = _locked_row(session, shop), database_time(session)
    before, bucket = _circuit(row), _bucket(row)
    if call.was_sent:
        bucket = sync_bucket(bucket, call.cost, call.bucket, since=call.since, now=now)
    else:
        bucket = refund_points(bucket, call.cost, now)
    _save_bucket(row, bucket)
    if call.answer is None:
        return before, before
    seconds = call.retry_after_seconds
    retry_after = None if seconds is None else timedelta(seconds=seconds)
    after = after_answer(before, call.kind, call.answer, now, retry_after)
    _save_circuit(row, after)
    if call.answer is CallOutcome.THROTTLED:
        row.refusals = [*row.refusals, now.timestamp()][-MAX_REFUSALS:]
    return before, after


def shop_status(session: Session, shop: str) -> ShopShown:
    """A shop that was never called has no bucket."""
    row = session.get(ShopRow, shop)
    return ShopShown(shop=shop) if row is None else _status(row)


def set_pause(session: Session, shop: str, *, by: str | None, reason: str | None) -> ShopShown:
    """Without `by`, end the pause."""
    row = _locked_row(session, shop)
    row.paused_at = None if by is None else row.paused_at or database_time(session)
    row.paused_by, row.pause_reason = by, reason
    return _status(row)


def close_circuit(session: Session, shop: str) -> None:
    _save_circuit(_locked_row(session, shop), Circuit())


def is_shop_paused(session: Session, shop: str) -> bool:
    return session.scalar(select(ShopRow.paused_at).where(ShopRow.shop == shop)) is not None


def _locked_row(session: Session, shop: str) -> ShopRow:
    found = session.scalar(select(ShopRow).where(ShopRow.shop == shop).with_for_update())
    if found is not None:
        return found
    new = default_bucket(database_time(session))
    insert = insert_into(session, ShopRow).values(
        shop=shop,
        circuit=CircuitState.CLOSED,
        streaks={},
        available=new.available,
        maximum=new.maximum,
        restore_rate=new.restore_rate,
        pending=0.0,
        measured_at=new.measured_at,
        refusals=[],
    )
    session.execute(insert.on_conflict_do_nothing(index_elements=["shop"]))
    return session.scalars(select(ShopRow).where(ShopRow.shop == shop).with_for_update()).one()


def _bucket(row: ShopRow) -> LeakyBucket:
    return LeakyBucket(
        row.available, row.maximum, row.restore_rate, row.pending, row.measured_at, row.heard_at
    )


def _save_bucket(row: ShopRow, kept: LeakyBucket) -> None:
    row.available, row.maximum, row.restore_rate = kept.available, kept.maximum, kept.restore_rate
    row.pending, row.measured_at, row.heard_at = kept.pending, kept.measured_at, kept.synced_at


def _circuit(row: ShopRow) -> Circuit:
    return Circuit(
        CircuitState(row.circuit),
        {CallKind(kind): Streak(**streak) for kind, streak in row.streaks.items()},
        row.until,
        CallKind(row.opened_by) if row.opened_by else None,
    )


def _save_circuit(row: ShopRow, kept: Circuit) -> None:
    row.circuit, row.until, row.opened_by = kept.state, kept.until, kept.opened_by
    row.streaks = {kind: asdict(streak) for kind, streak in kept.streaks.items()}


def _status(row: ShopRow) -> ShopShown:
    circuit = _circuit(row)
    return ShopShown(
        shop=row.shop,
        circuit=CircuitShown.model_validate(circuit, from_attributes=True),
        bucket=BucketShown.model_validate(row, from_attributes=True),
        paused_at=row.paused_at,
        paused_by=row.paused_by,
        pause_reason=row.pause_reason,
        refusals=tuple(datetime.fromtimestamp(at, UTC) for at in row.refusals),
    )


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
