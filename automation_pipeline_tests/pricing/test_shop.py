"""Rate-limited shop calls, the writes of a chunk of targets, and pauses of the shop."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from automation_pipeline.core.clock import SystemClock
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.pricing.models.rules import OnDrift
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import (
    ApplyContext,
    BucketShown,
    BucketStatus,
    CallResult,
    CallWithdrawnError,
    CircuitState,
    FailureKind,
    FailureSignal,
    Price,
    PricingContext,
    ShopShown,
    ShopUnavailableError,
    classify_failure,
)
from automation_pipeline.pricing.monitoring import PRICING_ALERTS
from automation_pipeline.pricing.rules.runs import (
    AppliedResult,
    ApplyTerms,
    AttemptProgress,
    FailedResult,
    RequeuedResult,
    TargetOutcome,
    WorkTarget,
)
from automation_pipeline.pricing.shop import (
    MAX_REASON_LENGTH,
    call_shop,
    pause_shop,
    resume_shop,
    shop_status,
)
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline.pricing.worker import ApplyHalt, apply_chunk
from automation_pipeline.storage.alerts import raise_alerts
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import mark_taken
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import (
    LOST,
    PRICES,
    FakeShop,
    product_variants,
    storefront,
)
from automation_pipeline_tests.pricing.harness import PricingHarness, stop_during_first_write
from automation_pipeline_tests.pricing.processes import (
    NAME,
    catalogue,
    may_call_now,
    read_prices_repeatedly,
    write_many,
)
from automation_pipeline_tests.pricing.rows import EVERY_ALERT, make_rule, make_run
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes
from automation_pipeline_tests.simulator_control import configure_shop, shop_totals
from automation_pipeline_tests.waiting import advance_time, run_with_fake_time, wait_until_async

COST = 10.0
SUCCESS = CallResult(value="well")
BUSY, REFUSED, THROTTLED = (
    FailureSignal(status=500),
    FailureSignal(status=404),
    FailureSignal(status=429),
)


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> PricingHarness:
    """A harness whose worker never waits: it exits while the shop must not be called."""
    return PricingHarness(database, clock, FakeShop(), {"longest_pause_seconds": 0.0})


def answer(signal: FailureSignal, retry_after: float | None = None) -> CallResult[str]:
    return CallResult(failure=classify_failure(signal, "The shop is busy.", retry_after))


def call(harness: PricingHarness, returned: CallResult[str] = SUCCESS) -> CallResult[str]:
    async def answered() -> CallResult[str]:
        return returned

    return run_with_fake_time(call_shop(answered, COST, harness.context))


async def never_called() -> CallResult[str]:
    raise AssertionError


def calls(harness: PricingHarness, signal: FailureSignal, times: int) -> None:
    for _ in range(times):
        call(harness, answer(signal))


def status_of(harness: PricingHarness) -> ShopShown:
    with harness.database.reading() as session:
        return shop_status(session, harness.storefront.name)


def state(harness: PricingHarness) -> CircuitState:
    return status_of(harness).circuit.state


def seconds_until_allowed(harness: PricingHarness) -> float:
    """Seconds until the shop may be called again."""
    with pytest.raises(ShopUnavailableError, match=r"shop\.test must not be called now") as rest:
        call(harness)
    assert rest.value.retry_after_seconds is not None
    return rest.value.retry_after_seconds


def shop_row(harness: PricingHarness) -> ShopRow:
    with harness.database.reading() as session:
        return session.get_one(ShopRow, NAME)


def set_shop(harness: PricingHarness, **columns: object) -> None:
    with harness.database.transaction() as session:
        row = session.get_one(ShopRow, NAME)
        for name, value in columns.items():
            setattr(row, name, value)


@pytest.mark.parametrize(("signal", "streak"), [(THROTTLED, 6), (BUSY, 5)])
def test_consecutive_throttles_or_failures_open_the_circuit_for_a_minute(
    harness: PricingHarness, signal: FailureSignal, streak: int
) -> None:
    calls(harness, signal, streak - 1)
    assert (state(harness), harness.events("automation.circuit.opened")) == ("closed", [])
    calls(harness, signal, 1)
    assert state(harness) == "open"
    assert 0 < seconds_until_allowed(harness) < 61
    [opened] = harness.events("automation.circuit.opened")
    assert (opened.payload["shop"], opened.payload["throttles"] or opened.payload["failures"]) == (
        NAME,
        streak,
    )


@pytest.mark.parametrize("reset_by", [SUCCESS, answer(REFUSED)])
def test_a_success_or_a_refused_variant_resets_the_streak(
    harness: PricingHarness, reset_by: CallResult[str]
) -> None:
    for signal, most in ((THROTTLED, 5), (BUSY, 4)):
        calls(harness, signal, most)
        call(harness, reset_by)
        calls(harness, signal, most)
        call(harness, reset_by)
    assert state(harness) == "closed"


def test_throttles_and_failures_have_separate_streaks(harness: PricingHarness) -> None:
    for _ in range(3):
        calls(harness, THROTTLED, 3)
        calls(harness, BUSY, 3)
    assert state(harness) == "closed"


def test_throttles_are_stored_and_counted(harness: PricingHarness) -> None:
    calls(harness, THROTTLED, 4)
    assert len(status_of(harness).refusals) == 4
    assert harness.meter.drain()["rules_429_count_total", 'shop="shop.test"'] == 4


def test_the_last_hundred_throttles_are_stored(harness: PricingHarness) -> None:
    set_shop(harness, refusals=[float(number) for number in range(100)])
    call(harness, answer(THROTTLED))
    refusals = status_of(harness).refusals
    assert (len(refusals), refusals[0].timestamp()) == (100, 1.0)
    assert refusals[-1].timestamp() > 100.0


def test_a_retry_after_applies_to_every_call(harness: PricingHarness) -> None:
    call(harness, answer(THROTTLED, 30.0))
    assert state(harness) == "closed"
    assert 0 < seconds_until_allowed(harness) < 31
    harness.end_shop_pause()
    assert call(harness) == SUCCESS


def test_a_long_retry_after_opens_the_circuit_at_once(harness: PricingHarness) -> None:
    call(harness, answer(THROTTLED, 1000.0))
    assert state(harness) == "open"
    assert 60 < seconds_until_allowed(harness) < 1001


def test_a_call_that_the_circuit_refuses_refunds_its_points(harness: PricingHarness) -> None:
    calls(harness, BUSY, 5)
    set_shop(harness, available=500.0, maximum=1000.0, restore_rate=1e-9, pending=0.0)
    seconds_until_allowed(harness)
    assert (shop_row(harness).available, shop_row(harness).pending) == (pytest.approx(500.0), 0.0)


def test_a_call_cancelled_while_waiting_refunds_its_points(harness: PricingHarness) -> None:
    set_shop(
        harness,
        available=0.0,
        maximum=1000.0,
        restore_rate=1e-3,
        pending=0.0,
        measured_at=database_now(),
    )

    async def cancel_it() -> None:
        waiting = asyncio.ensure_future(call_shop(never_called, COST, harness.context))
        await wait_until_async(lambda: shop_row(harness).pending == COST)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    run_with_fake_time(cancel_it())
    assert shop_row(harness).pending == 0.0
    assert -1 < shop_row(harness).available < 5


def test_a_call_cancelled_while_reserving_refunds_its_points(harness: PricingHarness) -> None:
    set_shop(
        harness,
        available=0.0,
        maximum=1000.0,
        restore_rate=1e-3,
        pending=0.0,
        measured_at=database_now(),
    )

    async def cancel_it() -> None:
        with harness.database.transaction() as session:
            session.get_one(ShopRow, NAME, with_for_update=True)  # blocks the reservation
            waiting = asyncio.ensure_future(call_shop(never_called, COST, harness.context))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(waiting, return_exceptions=True)

    run_with_fake_time(cancel_it())
    assert shop_row(harness).pending == 0.0


def test_a_failed_reservation_refunds_nothing(
    harness: PricingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_shop(harness, available=500.0, maximum=1000.0, restore_rate=1e-9, pending=20.0)

    def fail(*_arguments: object, **_options: object) -> None:
        raise ConnectionError("The database is away.")

    monkeypatch.setattr("automation_pipeline.pricing.shop.reserve_call", fail)
    with pytest.raises(ConnectionError):
        run_with_fake_time(call_shop(never_called, COST, harness.context))
    assert (shop_row(harness).available, shop_row(harness).pending) == (500.0, 20.0)


def test_after_the_pause_one_probe_closes_the_circuit(harness: PricingHarness) -> None:
    calls(harness, BUSY, 5)
    harness.end_shop_pause()
    seen: list[float] = []

    async def probe() -> CallResult[str]:
        with pytest.raises(ShopUnavailableError) as rest:
            await call_shop(probe, COST, harness.context)
        seen.append(rest.value.retry_after_seconds or 0.0)
        return SUCCESS

    assert run_with_fake_time(call_shop(probe, COST, harness.context)) == SUCCESS
    assert [0 < seconds < 61 for seconds in seen] == [True]
    assert state(harness) == "closed"
    assert call(harness) == SUCCESS


def test_a_circuit_that_closed_before_the_alerts_are_evaluated_raises_one_alert(
    harness: PricingHarness,
) -> None:
    rule = make_rule(harness.database, harness.clock)
    make_run(harness.database, rule, "APPLYING", harness.clock.now(), ["QUEUED"], shop=NAME)
    calls(harness, BUSY, 5)
    harness.end_shop_pause()
    assert (call(harness), state(harness)) == (SUCCESS, "closed")

    def raised() -> list[tuple[str, str, str]]:
        found = raise_alerts(
            PRICING_ALERTS, EVERY_ALERT, database=harness.database, clock=harness.clock
        )
        return [(one.subject, one.name, one.severity) for one in found]

    assert (raised(), raised()) == ([("default", "circuit_open", "critical")], [])
    harness.clock.advance(timedelta(minutes=16))  # the cooldown of critical alerts
    set_shop(harness, opened_at=datetime.now(UTC) - timedelta(minutes=5))
    assert raised() == []


def test_one_of_several_processes_sends_the_probe(
    harness: PricingHarness, database_url: str
) -> None:
    calls(harness, THROTTLED, 6)
    harness.end_shop_pause()
    results = run_in_processes(may_call_now, *[(database_url,)] * PROCESS_COUNT)
    assert sorted(results) == [False] * (PROCESS_COUNT - 1) + [True]
    assert state(harness) == "half_open"


def test_a_failed_probe_reopens_the_circuit_without_a_second_event(harness: PricingHarness) -> None:
    calls(harness, BUSY, 5)
    harness.end_shop_pause()
    calls(harness, THROTTLED, 1)
    assert state(harness) == "open"
    assert 0 < seconds_until_allowed(harness) < 61
    assert len(harness.events("automation.circuit.opened")) == 1


def test_after_a_cancelled_probe_another_call_is_the_probe(harness: PricingHarness) -> None:
    calls(harness, BUSY, 5)
    harness.end_shop_pause()

    async def cancel_it() -> CallResult[str]:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_with_fake_time(call_shop(cancel_it, COST, harness.context))
    assert (state(harness), shop_row(harness).pending) == ("half_open", 0.0)
    seconds_until_allowed(harness)
    harness.end_shop_pause()
    assert call(harness) == SUCCESS


def test_a_withdrawn_probe_leaves_the_probe_to_the_next_call(harness: PricingHarness) -> None:
    calls(harness, BUSY, 5)
    harness.end_shop_pause()

    async def not_wanted() -> bool:
        return False

    with pytest.raises(CallWithdrawnError):
        run_with_fake_time(call_shop(never_called, COST, harness.context, is_wanted=not_wanted))
    assert (state(harness), shop_row(harness).pending) == ("open", 0.0)
    assert call(harness) == SUCCESS
    assert state(harness) == "closed"


def test_a_waiting_call_starts_when_the_circuit_closes(
    harness: PricingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("automation_pipeline.pricing.shop.POLL_SECONDS", 0.02)
    harness.shop_options["longest_pause_seconds"] = 90.0
    call(harness, answer(THROTTLED, 60.0))

    async def end_pause_while_waiting() -> CallResult[str]:
        async def successful() -> CallResult[str]:
            return SUCCESS

        waiting = asyncio.ensure_future(call_shop(successful, COST, harness.context))
        await wait_until_async(lambda: shop_row(harness).pending > 0)
        harness.end_shop_pause()
        return await waiting

    assert run_with_fake_time(end_pause_while_waiting()) == SUCCESS


def test_a_timed_out_call_has_an_unknown_outcome(harness: PricingHarness) -> None:
    async def never() -> CallResult[str]:
        advance_time(31.0)
        await asyncio.Event().wait()
        raise AssertionError

    failure = run_with_fake_time(call_shop(never, COST, harness.context)).failure
    assert failure is not None
    assert (failure.kind, failure.outcome_unknown, failure.retryable) == (
        FailureKind.NETWORK,
        True,
        True,
    )
    assert status_of(harness).circuit.failures == 1


def test_the_bucket_status_of_an_answer_is_stored(harness: PricingHarness) -> None:
    call(harness, CallResult(value="well", bucket=BucketStatus(700.0, 4000.0, 200.0)))
    bucket = BucketShown(available=700.0, maximum=4000.0, restore_rate=200.0)
    assert status_of(harness).bucket == bucket


def test_the_first_call_of_a_shop_stores_it(database: Database) -> None:
    async def successful() -> CallResult[str]:
        return SUCCESS

    front = storefront(FakeShop(), meter=Meter())
    run_with_fake_time(call_shop(successful, COST, PricingContext(front, database, SystemClock())))
    with database.reading() as session:
        found = shop_status(session, front.name)
    assert found.bucket is not None
    assert (found.circuit.state, found.bucket.maximum, found.paused_at) == ("closed", 1000.0, None)


@pytest.fixture
def small_bucket(simulator_url: str) -> Iterator[str]:
    before = shop_totals(simulator_url)
    configure_shop(
        simulator_url,
        products=50,
        variants_per_product=5,
        currency="EUR",
        maximum=2000,
        restore_rate=500,
    )
    yield simulator_url
    kept = ("products", "variants_per_product", "currency", "maximum", "restore_rate")
    configure_shop(simulator_url, **{name: before[name] for name in kept})


def test_processes_that_share_a_bucket_are_never_throttled(
    database: Database, database_url: str, small_bucket: str
) -> None:
    """The bucket is nearly empty at the start, and the calls together cost more than it holds."""
    variants = catalogue(small_bucket)
    ids = [each.variant_id for each in variants]
    assert read_prices_repeatedly(database_url, small_bucket, ids, 10) == 10
    writes = [(each.product_id, each.variant_id) for each in variants[:120]]
    results = run_in_processes(
        write_many, *[(database_url, small_bucket, writes[part::3], 2) for part in range(3)]
    )
    totals = shop_totals(small_bucket)
    assert results == [40, 40, 40]
    assert (totals["throttled"], totals["calls"]["write"]) == (0, 120)
    assert totals["spent"] > 2 * totals["maximum"] - 800
    with database.reading() as session:
        found = shop_status(session, NAME)
    assert found is not None
    assert (found.bucket.maximum, found.bucket.restore_rate, found.refusals) == (2000.0, 500.0, ())


GONE, UNAUTHORISED = FailureSignal(status=404), FailureSignal(status=401)
TERMS = ApplyTerms(OnDrift.REFUSE, None)
STARTED_AT = datetime(2026, 5, 4, tzinfo=UTC)


async def call_directly(
    call: Callable[[], Awaitable[CallResult[object]]],
    _cost: float,
    _context: object,
    *,
    is_wanted: Callable[[], Awaitable[bool]],
    **_world: object,
) -> CallResult[object]:
    """Replaces `call_shop`: call at once, without rate limits."""
    if not await is_wanted():
        raise CallWithdrawnError("Not any more.")
    return await call()


@pytest.fixture
def no_rate_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automation_pipeline.pricing.worker.call_shop", call_directly)


def target(variant_id: str | None, product_id: str, number: int) -> WorkTarget:
    return WorkTarget(
        id=number,
        product_id=product_id,
        variant_id=variant_id,
        sku=None,
        before=Price(1000, "EUR"),
        after=Price(900, "EUR"),
        writes_compare_at=False,
        progress=AttemptProgress(),
        outcome_unknown=False,
        began_at=STARTED_AT,
    )


def targets(products: int, variants: int = 1) -> list[WorkTarget]:
    return [
        target(each.variant_id, each.product_id, number)
        for number, each in enumerate(product_variants(products, variants), 1)
    ]


def applied(
    shop: FakeShop,
    chosen: Sequence[WorkTarget],
    *,
    at_once: int = 5,
    is_wanted: Callable[[], bool] = lambda: True,
) -> tuple[dict[int, TargetOutcome], ApplyHalt | None]:
    """Apply the chosen targets; return the outcome of each target and the halt."""
    settled: list[TargetOutcome] = []

    class Owner:
        def keep(self) -> bool:
            return is_wanted()

        def save(self, outcomes: Sequence[TargetOutcome]) -> None:
            settled.extend(outcomes)

    front = storefront(shop, calls_at_once=at_once)
    context = ApplyContext(front, Database("sqlite://"), SystemClock(), shop)
    halt = run_with_fake_time(apply_chunk(chosen, TERMS, Owner(), context))
    assert sorted(one.target.id for one in settled) == [one.id for one in chosen]
    return {one.target.id: one for one in settled}, halt


def overlap_writes(shop: FakeShop, count: int) -> None:
    """Make the first `count` writes overlap."""
    first = asyncio.Barrier(count)

    async def during_call(kind: str, _subject: object) -> None:
        if kind == "write" and shop.call_count("write") <= count:
            await first.wait()
        await asyncio.sleep(0)

    shop._during_call = during_call


@pytest.mark.usefixtures("no_rate_limit")
def test_throttles_halve_the_concurrency() -> None:
    shop = FakeShop(*product_variants(20))
    overlap_writes(shop, 4)
    later: list[int] = []
    first = shop._during_call
    assert first is not None

    async def counted(kind: str, subject: object) -> None:
        if kind == "write" and shop.call_count("write") > 4:
            await asyncio.sleep(0.05)  # longer than it takes to save an outcome
            later.append(shop._open)
        await first(kind, subject)

    shop._during_call = counted
    for product in range(1, 5):
        shop.fail_once(str(product), THROTTLED)
    settled, halt = applied(shop, targets(20), at_once=4)
    assert (shop.max_concurrent, max(later), halt) == (4, 2, None)
    assert sorted(number for number, one in settled.items() if isinstance(one, RequeuedResult)) == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.usefixtures("no_rate_limit")
def test_throttled_tasks_still_settle_every_product() -> None:
    """Every call is throttled, including the last ones."""
    shop = FakeShop(*product_variants(8))
    overlap_writes(shop, 5)
    for product in range(1, 9):
        shop.fail_once(str(product), THROTTLED)
    settled, halt = applied(shop, targets(8))
    assert (len(settled), halt, shop.call_count("write")) == (8, None, 8)
    assert {type(one) for one in settled.values()} == {RequeuedResult}


@pytest.mark.usefixtures("no_rate_limit")
def test_a_critical_failure_halts_and_requeues_untried_targets() -> None:
    shop = FakeShop(*product_variants(6))
    shop.fail_once("2", UNAUTHORISED)
    settled, halt = applied(shop, targets(6), at_once=1)
    assert halt is not None
    assert halt.critical is not None
    kinds = [type(settled[number]) for number in range(1, 7)]
    assert kinds == [
        AppliedResult,
        FailedResult,
        RequeuedResult,
        RequeuedResult,
        RequeuedResult,
        RequeuedResult,
    ]
    assert all(
        one.failure is None and one.wait_seconds == 0
        for one in settled.values()
        if isinstance(one, RequeuedResult)
    )
    assert shop.call_count("write") == 2


def test_targets_of_a_paused_shop_wait_as_long_as_the_shop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def rests(
        call: Callable[[], Awaitable[CallResult[object]]],
        cost: float,
        _context: object,
        **_how: object,
    ) -> CallResult[object]:
        if cost == shop.costs.write:
            raise ShopUnavailableError("It rests.", retry_after_seconds=42.0)
        return await call()

    monkeypatch.setattr("automation_pipeline.pricing.worker.call_shop", rests)
    shop = FakeShop(*product_variants(3))
    settled, halt = applied(shop, targets(3))
    assert halt == ApplyHalt(pause_seconds=42.0)
    assert {
        (one.wait_seconds, one.failure)
        for one in settled.values()
        if isinstance(one, RequeuedResult)
    } == {(42.0, None)}
    assert shop.call_count("write") == 0


@pytest.mark.usefixtures("no_rate_limit")
def test_withdrawn_targets_are_requeued_untried() -> None:
    shop = FakeShop(*product_variants(4))
    settled, halt = applied(
        shop, targets(4), at_once=1, is_wanted=lambda: shop.call_count("write") < 2
    )
    assert [type(settled[number]) for number in range(1, 5)] == [
        AppliedResult,
        AppliedResult,
        RequeuedResult,
        RequeuedResult,
    ]
    assert (halt, settled[3]) == (None, RequeuedResult(targets(4)[2], 0.0, AttemptProgress()))


@pytest.mark.usefixtures("no_rate_limit")
def test_after_a_failed_read_all_targets_are_requeued_with_a_known_outcome() -> None:
    shop = FakeShop(*product_variants(2))
    shop.fail_once(PRICES, LOST)
    settled, _ = applied(shop, targets(2))
    assert [(type(one), one.outcome_unknown) for one in settled.values()] == [
        (RequeuedResult, False)
    ] * 2
    assert shop.call_count("write") == 0


@pytest.mark.usefixtures("no_rate_limit")
def test_a_target_without_a_variant_fails_without_a_call() -> None:
    shop = FakeShop()
    settled, _ = applied(shop, [target(None, "1", 1)])
    assert (type(settled[1]), shop.calls) == (FailedResult, [])


@pytest.mark.usefixtures("no_rate_limit")
def test_a_variant_missing_from_the_answer_has_an_unknown_outcome() -> None:
    class ForgetfulShop(FakeShop):
        async def write(self, product_id: str, writes: Sequence[object]) -> CallResult[object]:
            return CallResult(value={})

    settled, _ = applied(ForgetfulShop(*product_variants(1)), targets(1))
    one = settled[1]
    assert isinstance(one, RequeuedResult)
    assert (one.outcome_unknown, one.progress.attempts) == (True, 1)


@given(
    st.lists(
        st.tuples(st.integers(1, 12), st.sampled_from([THROTTLED, BUSY, GONE, LOST])),
        max_size=20,
    ),
    st.integers(1, 6),
    st.booleans(),
)
def test_every_target_is_settled_once_under_any_failures(
    faults: list[tuple[int, FailureSignal]], at_once: int, bursts: bool
) -> None:
    shop = FakeShop(*product_variants(12))
    for product, signal in faults:
        shop.fail_once(str(product), signal)
    if bursts:
        overlap_writes(shop, at_once)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("automation_pipeline.pricing.worker.call_shop", call_directly)
        settled, halt = applied(shop, targets(12), at_once=at_once)
    assert halt is None
    assert shop.max_concurrent <= at_once
    assert sum(isinstance(one, AppliedResult) for one in settled.values()) == len(shop.written)


SHOP = "shop.test"


@pytest.fixture
def three_product_harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(database, clock, FakeShop(*product_variants(3)), {"calls_at_once": 1})


def pause(
    harness: PricingHarness, reason: str | None = "Stocktaking", actor: str = "user:7"
) -> ShopShown:
    return pause_shop(SHOP, database=harness.database, actor=actor, reason=reason)


def resume(harness: PricingHarness) -> None:
    resume_shop(SHOP, database=harness.database, clock=harness.clock)


def make_targets_old(harness: PricingHarness, run: RuleRun) -> None:
    """Move the start of each target back, beyond its time limit."""
    for target in harness.targets(run.id):
        if target.began_at is not None:
            harness.set_target(target.id, began_at=target.began_at - timedelta(minutes=20))


def test_a_run_does_not_call_a_paused_shop(three_product_harness: PricingHarness) -> None:
    run = three_product_harness.queued_run()
    pause(three_product_harness)
    three_product_harness.shop.calls.clear()
    left = three_product_harness.work(run)
    row = three_product_harness.run_row(run.id)
    assert (left.status, left.resume_at, row.lease_owner, three_product_harness.shop.calls) == (
        "APPLYING",
        None,
        None,
        [],
    )
    assert set(three_product_harness.statuses(run.id).values()) == {"QUEUED"}


def test_a_paused_shop_can_be_previewed(three_product_harness: PricingHarness) -> None:
    pause(three_product_harness)
    assert three_product_harness.previewed_run().total_targets == 3
    assert three_product_harness.shop.written == []


def test_a_pause_stops_a_run_before_its_next_call_until_resumed(
    three_product_harness: PricingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = three_product_harness.queued_run()
    with monkeypatch.context() as patch:
        stop_during_first_write(three_product_harness, lambda: pause(three_product_harness), patch)
        left = three_product_harness.work(run)
    assert (left.status, left.resume_at, three_product_harness.run_row(run.id).lease_owner) == (
        "APPLYING",
        None,
        None,
    )
    assert three_product_harness.statuses(run.id) == {
        "101": "APPLIED",
        "201": "QUEUED",
        "301": "QUEUED",
    }
    assert [target.attempts for target in three_product_harness.targets(run.id)] == [0, 0, 0]
    make_targets_old(three_product_harness, run)
    resume(three_product_harness)
    assert three_product_harness.work(run).status == "APPLIED"
    assert [three_product_harness.shop.write_count(one) for one in ("101", "201", "301")] == [
        1,
        1,
        1,
    ]


def test_a_second_pause_keeps_the_time_and_replaces_the_reason(
    three_product_harness: PricingHarness,
) -> None:
    first, second = pause(three_product_harness), pause(three_product_harness, "Sale", "user:8")
    assert first.paused_at is not None
    assert (second.paused_at, second.paused_by, second.pause_reason) == (
        first.paused_at,
        "user:8",
        "Sale",
    )


def test_a_shop_that_was_never_called_can_be_paused(three_product_harness: PricingHarness) -> None:
    paused = pause_shop("new.shop", database=three_product_harness.database, actor="user:7")
    assert (paused.shop, paused.paused_at is not None, paused.pause_reason) == (
        "new.shop",
        True,
        None,
    )
    run = three_product_harness.queued_run()
    assert three_product_harness.work(run).status == "APPLIED"


def test_a_pause_reason_has_at_most_1000_characters(three_product_harness: PricingHarness) -> None:
    pause(three_product_harness, "x" * MAX_REASON_LENGTH)
    with pytest.raises(InvalidInputError) as refusal:
        pause(three_product_harness, "x" * (MAX_REASON_LENGTH + 1))
    assert refusal.value.fields == (("reason", "must have at most 1000 characters"),)


@pytest.fixture
def two_product_harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(database, clock, FakeShop(*product_variants(2)))


def resume_by_name(harness: PricingHarness, shop: str = SHOP) -> ShopShown:
    return resume_shop(shop, database=harness.database, clock=harness.clock)


def mark_requests_taken(harness: PricingHarness, *keys: str) -> None:
    with harness.database.transaction() as session:
        for key in keys:
            mark_taken(session, key, "dagster")


def test_resuming_a_shop_requests_a_worker_that_continues(
    two_product_harness: PricingHarness,
) -> None:
    run, other = (
        two_product_harness.queued_run(),
        two_product_harness.queued_run(two_product_harness.rule(name="Other")),
    )
    pause_shop(SHOP, database=two_product_harness.database, actor="user:7")
    mark_requests_taken(two_product_harness, *(key for key, _ in two_product_harness.requests()))
    two_product_harness.work(run)
    two_product_harness.set_run(other.id, shop="another.shop")
    resumed = resume_by_name(two_product_harness)
    assert (resumed.paused_at, resumed.paused_by, resumed.pause_reason) == (None, None, None)
    assert [key for key, _ in two_product_harness.requests()][2:] == [f"rule-run-{run.id}-2"]
    assert two_product_harness.work(run).status == "APPLIED"


def test_resuming_twice_requests_one_worker(two_product_harness: PricingHarness) -> None:
    two_product_harness.queued_run()
    pause_shop(SHOP, database=two_product_harness.database, actor="user:7")
    resume_by_name(two_product_harness)
    resume_by_name(two_product_harness)
    assert len(two_product_harness.requests()) == 1


def test_resuming_a_shop_closes_an_open_circuit(two_product_harness: PricingHarness) -> None:
    with two_product_harness.database.transaction() as session:
        session.execute(
            update(ShopRow).values(
                circuit="open",
                streaks={"write": {"throttles": 6, "failures": 2}},
                opened_by="write",
                until=database_now(900.0),
            )
        )
    circuit = resume_by_name(two_product_harness).circuit
    assert (circuit.state, circuit.throttles, circuit.failures, circuit.until) == (
        "closed",
        0,
        0,
        None,
    )
    assert two_product_harness.work(two_product_harness.queued_run()).status == "APPLIED"
