"""Calls of the shop within its rate limit: the catalogue and prices; pause and resume."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any, TypeVar

from sqlalchemy import select

from automation_pipeline.core.background import together
from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import InvalidInputError, PermanentError, TransientError
from automation_pipeline.pricing.events import circuit_key, pricing_event
from automation_pipeline.pricing.models.rules import Policy
from automation_pipeline.pricing.models.shop import (
    MAX_PRICES_PER_READ,
    ApplyContext,
    BucketShown,
    CallFailure,
    CallResult,
    CallWithdrawnError,
    CataloguePage,
    CircuitShown,
    CircuitState,
    FailureKind,
    FailureSignal,
    Price,
    PricingContext,
    ShopShown,
    ShopUnavailableError,
    classify_failure,
)
from automation_pipeline.pricing.queries.runs import file_run_requests
from automation_pipeline.pricing.queries.targets import changes_since
from automation_pipeline.pricing.rules.evaluation import used_budget
from automation_pipeline.pricing.rules.pacing import (
    CallKind,
    CallOutcome,
    Circuit,
    LeakyBucket,
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
from automation_pipeline.pricing.runs import runs_without_worker
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import database_time, insert_into

MAX_REFUSALS = 100
MAX_REASON_LENGTH = 1000
# The interval of a waiting call, because a probe of another process may close the circuit early.
POLL_SECONDS = 1.0

Value = TypeVar("Value")


async def call_shop(
    call: Callable[[], Awaitable[CallResult[Value]]],
    cost: float,
    context: PricingContext,
    *,
    kind: CallKind = CallKind.READ,
    is_wanted: Callable[[], Awaitable[bool]] | None = None,
) -> CallResult[Value]:
    """Make the call when the rate limit allows it. Every call of every process uses this function, so
    that together they stay within the shop's rate limit. `is_wanted` is evaluated just before the
    call. Raises CallWithdrawnError if it returned False. Raises ShopUnavailableError if the shop must not be called for
    longer than a worker waits."""
    reservation = await _reserve(cost, context)
    try:
        if is_wanted is not None and not await is_wanted():
            raise CallWithdrawnError("The call is no longer needed.")
    except BaseException:  # a call that is not made costs nothing
        await _transact(
            context, lambda session, shop: refund_call(session, shop, cost, reservation.probe)
        )
        raise
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
        if result is not None and result.is_throttled:
            context.storefront.meter.count("rules_429_count_total", shop=context.storefront.name)
        await _transact(
            context,
            lambda session, shop: _record_call(session, shop, result, kind, cost, reservation.at),
        )


async def _reserve(cost: float, context: PricingContext) -> "CallReservation":
    reserving = asyncio.create_task(
        _transact(
            context, lambda session, shop: reserve_call(session, shop, cost, is_reserved=False)
        )
    )
    try:
        reservation = await asyncio.shield(reserving)
        while reservation.seconds > 0:
            if not reservation.is_blocked:
                await asyncio.sleep(reservation.seconds)
            elif reservation.seconds > context.storefront.options.longest_pause_seconds:
                raise ShopUnavailableError(
                    f"{context.storefront.name} must not be called now.",
                    retry_after_seconds=reservation.seconds,
                )
            else:
                await asyncio.sleep(min(reservation.seconds, POLL_SECONDS))
            reservation = await _transact(
                context, lambda session, shop: reserve_call(session, shop, cost, is_reserved=True)
            )
    except BaseException:  # cancellation does not stop the reserving thread
        await asyncio.wait({reserving})
        if not reserving.cancelled() and reserving.exception() is None:
            await _transact(context, lambda session, shop: refund_call(session, shop, cost))
        raise
    return reservation


async def _transact(context: PricingContext, change: Callable[[Session, str], Value]) -> Value:
    def transact() -> Value:
        with context.database.transaction() as session:
            return change(session, context.storefront.name)

    return await asyncio.to_thread(transact)


@dataclass(frozen=True)
class CallReservation:
    """The call may start `seconds` after `at`. `is_blocked`: the circuit forbids calls. `probe` is the
    circuit if this call is the probe that shows whether the shop has recovered."""

    at: datetime
    seconds: float
    is_blocked: bool = False
    probe: Circuit | None = None


def reserve_call(session: Session, shop: str, cost: float, *, is_reserved: bool) -> CallReservation:
    """Reserve the points, unless they are already reserved, and return when the call may start."""
    row, now = _locked_row(session, shop), database_time(session)
    wait = 0.0
    if not is_reserved:
        left, wait = reserve_points(_bucket(row), cost, now)
        _save_bucket(row, left)
    permission = request_permit(_circuit(row), now)
    if isinstance(permission, datetime):
        return CallReservation(now, max(wait, (permission - now).total_seconds()), is_blocked=True)
    if wait > 0:
        return CallReservation(now, wait)
    _save_circuit(row, permission.circuit)
    return CallReservation(now, 0.0, probe=permission.circuit if permission.is_probe else None)


def refund_call(session: Session, shop: str, cost: float, probe: Circuit | None = None) -> None:
    """Refund the points of a call that is not made. If it was the probe, the next call is."""
    row, now = _locked_row(session, shop), database_time(session)
    _save_bucket(row, refund_points(_bucket(row), cost, now))
    if probe is not None:
        _save_circuit(row, without_probe(_circuit(row), probe, now))


def _record_call(
    session: Session,
    shop: str,
    result: CallResult[Any] | None,
    kind: CallKind,
    cost: float,
    since: datetime,
) -> None:
    """Record the answer. A cancelled call has no result and says nothing about the shop. A call that
    did not reach the shop costs nothing."""
    row, now = _locked_row(session, shop), database_time(session)
    before, bucket = _circuit(row), _bucket(row)
    failure = result.failure if result else None
    if failure and failure.kind is FailureKind.NETWORK and not failure.outcome_unknown:
        _save_bucket(row, refund_points(bucket, cost, now))
    else:
        status = result.bucket if result else None
        _save_bucket(row, sync_bucket(bucket, cost, status, since=since, now=now))
    if result is None:
        return
    retry_after = None
    answer = CallOutcome.FAILED if failure and failure.retryable else CallOutcome.SUCCEEDED
    if failure and result.is_throttled:
        answer = CallOutcome.THROTTLED
        row.refusals = [*row.refusals, now.timestamp()][-MAX_REFUSALS:]
        if failure.retry_after_seconds is not None:
            retry_after = timedelta(seconds=failure.retry_after_seconds)
    after = after_answer(before, kind, answer, now, retry_after)
    _save_circuit(row, after)
    if has_opened(before, after):
        row.opened_at, until = now, after.until or now
        payload: dict[str, object] = {
            "shop": shop,
            "until": iso(until),
            "throttles": after.throttles,
            "failures": after.failures,
        }
        key, name = circuit_key(shop, until), "automation.circuit.opened"
        enqueue(session, [pricing_event(name, key, f"shop-{shop}", now, payload)])


def _locked_row(session: Session, shop: str) -> ShopRow:
    query = select(ShopRow).where(ShopRow.shop == shop).with_for_update()
    found = session.scalar(query)
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
    return session.scalars(query).one()


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


def shop_status(session: Session, shop: str) -> ShopShown:
    """A shop that was never called has no bucket."""
    row = session.get(ShopRow, shop)
    return ShopShown(shop=shop) if row is None else _status(row)


def _status(row: ShopRow) -> ShopShown:
    return ShopShown(
        shop=row.shop,
        circuit=CircuitShown.model_validate(_circuit(row), from_attributes=True),
        bucket=BucketShown.model_validate(row, from_attributes=True),
        paused_at=row.paused_at,
        paused_by=row.paused_by,
        pause_reason=row.pause_reason,
        refusals=tuple(datetime.fromtimestamp(at, UTC) for at in row.refusals),
    )


def is_shop_paused(session: Session, shop: str) -> bool:
    return session.scalar(select(ShopRow.paused_at).where(ShopRow.shop == shop)) is not None


def pause_shop(
    shop: str, *, database: Database, actor: str, reason: str | None = None
) -> ShopShown:
    """Pause the shop: workers stop before their next write. A repeated pause keeps the time of the
    first one and replaces its reason."""
    if reason is not None and len(reason) > MAX_REASON_LENGTH:
        fault = f"must have at most {MAX_REASON_LENGTH} characters"
        raise InvalidInputError("Invalid pause data", (("reason", fault),))
    with database.transaction() as session:
        row = _locked_row(session, shop)
        row.paused_at = row.paused_at or database_time(session)
        row.paused_by, row.pause_reason = actor, reason
        return _status(row)


def resume_shop(shop: str, *, database: Database, clock: Clock) -> ShopShown:
    """Resume the runs of the shop, and close an open circuit."""
    with database.transaction() as session:
        row = _locked_row(session, shop)
        _save_circuit(row, Circuit())
        row.paused_at = row.paused_by = row.pause_reason = None
        session.flush()
        file_run_requests(session, runs_without_worker(session, shop=shop), clock.now())
        return _status(row)


async def _call_with_retries(
    call: Callable[[], Awaitable[CallResult[Value]]],
    cost: float,
    context: PricingContext,
    random: Random,
) -> CallResult[Value]:
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
    """Yield the pages in the shop's order. Raises TransientError or PermanentError if a page cannot be read."""
    random, seen = Random(), set[str | None]()
    name, after = context.storefront.name, None
    async with context.storefront.open() as shop:
        while after not in seen:
            result = await _call_with_retries(
                partial(shop.page, after), shop.costs.page, context, random
            )
            failure, page = result.failure, result.value
            if failure is not None and failure.retryable:
                raise TransientError(
                    failure.message, retry_after_seconds=failure.retry_after_seconds
                )
            if page is None:
                raise PermanentError(failure.message if failure else f"{name} answered nothing.")
            yield page
            seen.add(after)
            after = page.after
            if after is None:
                return
    raise PermanentError(f"{name} returns the same page of its catalogue repeatedly.")


async def read_prices(variant_ids: Sequence[str], context: ApplyContext) -> dict[str, Price | str]:
    """Return, by variant, its price, or the reason why it could not be read. ShopUnavailableError: the
    shop must not be called for longer than a worker waits, and no price is returned."""
    shop, missing = context.shop, "the variant, or its price, is no longer in the shop"
    distinct, size = list(dict.fromkeys(variant_ids)), MAX_PRICES_PER_READ
    batches = iter([distinct[start : start + size] for start in range(0, len(distinct), size)])
    found: dict[str, Price | str] = {}
    critical: CallFailure | None = None

    async def read_batches() -> None:
        nonlocal critical
        for batch in batches:
            failure, prices = critical, None
            if failure is None:
                result = await _call_with_retries(
                    partial(shop.prices, batch),
                    shop.costs.reading(len(batch)),
                    context,
                    context.random,
                )
                failure, prices = result.failure, result.value
            if failure is None:
                found.update({one: (prices or {}).get(one, missing) for one in batch})
            else:
                found.update(dict.fromkeys(batch, failure.message))
                critical = failure if failure.is_critical else critical

    async with together() as group:
        for _ in range(context.storefront.options.calls_at_once):
            group.create_task(read_batches())
    return found


def used_budgets(
    policy: Policy | None,
    variant_ids: Sequence[str],
    context: PricingContext,
    now: datetime | None = None,
) -> dict[str, Decimal]:
    """Return, by variant, the used part of its daily budget; nothing without a policy with a budget.
    `now` defaults to the database's time."""
    if policy is None or policy.daily_change_budget_pct is None or not variant_ids:
        return {}
    storefront = context.storefront
    with context.database.reading() as session:
        since = start_of_day(now or database_time(session), storefront.options.time_zone)
        changes = changes_since(session, storefront.name, variant_ids, since)
    return {variant_id: used_budget(pairs) for variant_id, pairs in changes.items()}
