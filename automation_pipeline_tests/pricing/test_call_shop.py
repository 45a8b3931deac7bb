"""Calls of a shop: its pace is kept by all processes together, and it is left alone when it wants
to be."""

import asyncio
from collections.abc import Iterator

import pytest

from automation_pipeline.core.clock import SystemClock
from automation_pipeline.core.metrics import Meter
from automation_pipeline.pricing import shop as module
from automation_pipeline.pricing.models.shop import (
    BucketShown,
    BucketStatus,
    CallResult,
    CallWithdrawnError,
    CircuitState,
    FailureKind,
    FailureSignal,
    ShopRestingError,
    ShopShown,
    classify_failure,
)
from automation_pipeline.pricing.ports import PricingContext
from automation_pipeline.pricing.queries.shops import shop_status
from automation_pipeline.pricing.shop import call_shop
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, storefront
from automation_pipeline_tests.outside import set_up_shop, shop_totals
from automation_pipeline_tests.pricing.bench import Bench
from automation_pipeline_tests.pricing.calling import NAME, catalogue, drain, may_go, write_many
from automation_pipeline_tests.processes import CREW, at_once
from automation_pipeline_tests.waiting import come_true, leap, run

COST = 10.0
WELL = CallResult(value="well")
BUSY, REFUSED, HASTE = (
    FailureSignal(status=500),
    FailureSignal(status=404),
    FailureSignal(status=429),
)


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    """A worker that waits for nothing: it leaves a shop that rests."""
    return Bench(database, clock, FakeShop(), {"longest_pause_seconds": 0.0})


def answer(signal: FailureSignal, told: float | None = None) -> CallResult[str]:
    return CallResult(failure=classify_failure(signal, "The shop is busy.", told))


def call(bench: Bench, brought: CallResult[str] = WELL) -> CallResult[str]:
    async def answered() -> CallResult[str]:
        return brought

    return run(call_shop(answered, COST, bench.context))


async def never_called() -> CallResult[str]:
    raise AssertionError


def calls(bench: Bench, signal: FailureSignal, times: int) -> None:
    for _ in range(times):
        call(bench, answer(signal))


def standing(bench: Bench) -> ShopShown:
    with bench.database.reading() as session:
        return shop_status(session, bench.front.name)


def state(bench: Bench) -> CircuitState:
    return standing(bench).circuit.state


def rest_of(bench: Bench) -> float:
    """For how long the shop is to be left alone, as the next caller is told."""
    with pytest.raises(ShopRestingError, match=r"shop\.test is to be left alone") as rest:
        call(bench)
    assert rest.value.retry_after_seconds is not None
    return rest.value.retry_after_seconds


def shop_row(bench: Bench) -> ShopRow:
    with bench.database.reading() as session:
        return session.get_one(ShopRow, NAME)


def set_shop(bench: Bench, **columns: object) -> None:
    with bench.database.transaction() as session:
        row = session.get_one(ShopRow, NAME)
        for name, value in columns.items():
            setattr(row, name, value)


@pytest.mark.parametrize(("signal", "streak"), [(HASTE, 6), (BUSY, 5)])
def test_a_streak_of_refusals_or_failures_opens_the_circuit_for_a_minute(
    bench: Bench, signal: FailureSignal, streak: int
) -> None:
    calls(bench, signal, streak - 1)
    assert (state(bench), bench.events("automation.circuit.opened")) == ("closed", [])
    calls(bench, signal, 1)
    assert state(bench) == "open"
    assert 0 < rest_of(bench) < 61
    [opened] = bench.events("automation.circuit.opened")
    assert (opened.payload["shop"], opened.payload["throttles"] or opened.payload["failures"]) == (
        NAME,
        streak,
    )


@pytest.mark.parametrize("proper", [WELL, answer(REFUSED)])
def test_a_proper_answer_ends_a_streak_and_the_refusal_of_a_variant_is_one(
    bench: Bench, proper: CallResult[str]
) -> None:
    for signal, most in ((HASTE, 5), (BUSY, 4)):
        calls(bench, signal, most)
        call(bench, proper)
        calls(bench, signal, most)
        call(bench, proper)
    assert state(bench) == "closed"


def test_refusals_are_counted_apart_from_failures(bench: Bench) -> None:
    for _ in range(3):
        calls(bench, HASTE, 3)
        calls(bench, BUSY, 3)
    assert state(bench) == "closed"


def test_refusals_are_remembered_and_metered(bench: Bench) -> None:
    calls(bench, HASTE, 4)
    assert len(standing(bench).refusals) == 4
    assert bench.meter.drain()["rules_429_count_total", 'shop="shop.test"'] == 4


def test_the_wait_that_a_refusal_comes_with_is_kept_by_all(bench: Bench) -> None:
    call(bench, answer(HASTE, 30.0))
    assert state(bench) == "closed"
    assert 0 < rest_of(bench) < 31
    bench.rested()
    assert call(bench) == WELL


def test_a_shop_that_asks_for_a_long_wait_is_left_alone_at_once(bench: Bench) -> None:
    call(bench, answer(HASTE, 1000.0))
    assert state(bench) == "open"
    assert 60 < rest_of(bench) < 1001


def test_who_is_sent_away_gives_the_points_back(bench: Bench) -> None:
    calls(bench, BUSY, 5)
    set_shop(bench, available=500.0, maximum=1000.0, restore_rate=1e-9, pending=0.0)
    rest_of(bench)
    assert (shop_row(bench).available, shop_row(bench).pending) == (pytest.approx(500.0), 0.0)


def test_who_is_broken_off_while_waiting_gives_the_points_back(bench: Bench) -> None:
    set_shop(
        bench,
        available=0.0,
        maximum=1000.0,
        restore_rate=1e-3,
        pending=0.0,
        measured_at=database_now(),
    )

    async def broken_off() -> None:
        waiting = asyncio.ensure_future(call_shop(never_called, COST, bench.context))
        await come_true(lambda: shop_row(bench).pending == COST)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    run(broken_off())
    assert shop_row(bench).pending == 0.0
    assert -1 < shop_row(bench).available < 5


def test_who_is_broken_off_in_the_moment_of_the_promise_gives_it_back(bench: Bench) -> None:
    set_shop(
        bench,
        available=0.0,
        maximum=1000.0,
        restore_rate=1e-3,
        pending=0.0,
        measured_at=database_now(),
    )

    async def broken_off() -> None:
        with bench.database.transaction() as session:
            session.get_one(ShopRow, NAME, with_for_update=True)  # in the way of the promise
            waiting = asyncio.ensure_future(call_shop(never_called, COST, bench.context))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(waiting, return_exceptions=True)

    run(broken_off())
    assert shop_row(bench).pending == 0.0


def test_when_the_pause_is_over_one_call_goes_to_see_and_closes_the_circuit(bench: Bench) -> None:
    calls(bench, BUSY, 5)
    bench.rested()
    seen: list[float] = []

    async def probe() -> CallResult[str]:
        with pytest.raises(ShopRestingError) as rest:
            await call_shop(probe, COST, bench.context)
        seen.append(rest.value.retry_after_seconds or 0.0)
        return WELL

    assert run(call_shop(probe, COST, bench.context)) == WELL
    assert [0 < seconds < 61 for seconds in seen] == [True]
    assert state(bench) == "closed"
    assert call(bench) == WELL


def test_of_several_processes_that_ask_when_the_pause_is_over_one_goes(
    bench: Bench, database_url: str
) -> None:
    calls(bench, HASTE, 6)
    bench.rested()
    went = at_once(may_go, *[(database_url,)] * CREW)
    assert sorted(went) == [False] * (CREW - 1) + [True]
    assert state(bench) == "half_open"


def test_a_probe_that_fails_opens_the_circuit_again_and_is_no_news(bench: Bench) -> None:
    calls(bench, BUSY, 5)
    bench.rested()
    calls(bench, HASTE, 1)
    assert state(bench) == "open"
    assert 0 < rest_of(bench) < 61
    assert len(bench.events("automation.circuit.opened")) == 1


def test_a_probe_that_is_broken_off_says_nothing_and_another_goes_later(bench: Bench) -> None:
    calls(bench, BUSY, 5)
    bench.rested()

    async def broken_off() -> CallResult[str]:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(call_shop(broken_off, COST, bench.context))
    assert (state(bench), shop_row(bench).pending) == ("half_open", 0.0)
    rest_of(bench)
    bench.rested()
    assert call(bench) == WELL


def test_a_probe_that_is_not_wanted_any_more_leaves_its_turn_to_the_next_call(bench: Bench) -> None:
    calls(bench, BUSY, 5)
    bench.rested()

    async def unwanted() -> bool:
        return False

    with pytest.raises(CallWithdrawnError):
        run(call_shop(never_called, COST, bench.context, is_wanted=unwanted))
    assert (state(bench), shop_row(bench).pending) == ("open", 0.0)
    assert call(bench) == WELL
    assert state(bench) == "closed"


def test_who_waits_for_a_shop_goes_as_soon_as_it_is_well_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_AGAIN_SECONDS", 0.02)
    bench.knobs["longest_pause_seconds"] = 90.0
    call(bench, answer(HASTE, 60.0))

    async def rested_meanwhile() -> CallResult[str]:
        async def well() -> CallResult[str]:
            return WELL

        waiting = asyncio.ensure_future(call_shop(well, COST, bench.context))
        await come_true(lambda: shop_row(bench).pending > 0)
        bench.rested()
        return await waiting

    assert run(rested_meanwhile()) == WELL


def test_a_call_that_takes_too_long_is_lost(bench: Bench) -> None:
    async def never() -> CallResult[str]:
        leap(31.0)
        await asyncio.Event().wait()
        raise AssertionError

    failure = run(call_shop(never, COST, bench.context)).failure
    assert failure is not None
    assert (failure.kind, failure.outcome_unknown, failure.retryable) == (
        FailureKind.NETWORK,
        True,
        True,
    )
    assert standing(bench).circuit.failures == 1


def test_what_the_shop_tells_of_its_bucket_is_kept(bench: Bench) -> None:
    call(bench, CallResult(value="well", bucket=BucketStatus(700.0, 4000.0, 200.0)))
    bucket = BucketShown(available=700.0, maximum=4000.0, restore_rate=200.0)
    assert standing(bench).bucket == bucket


def test_a_shop_that_was_never_called_is_kept_from_the_first_call_on(database: Database) -> None:
    async def well() -> CallResult[str]:
        return WELL

    front = storefront(FakeShop(), meter=Meter())
    run(call_shop(well, COST, PricingContext(front, database, SystemClock())))
    with database.reading() as session:
        found = shop_status(session, front.name)
    assert found.bucket is not None
    assert (found.circuit.state, found.bucket.maximum, found.paused_at) == ("closed", 1000.0, None)


@pytest.fixture
def small_bucket(simulated: str) -> Iterator[str]:
    before = shop_totals(simulated)
    set_up_shop(
        simulated,
        products=50,
        variants_per_product=5,
        currency="EUR",
        maximum=2000,
        restore_rate=500,
    )
    yield simulated
    kept = ("products", "variants_per_product", "currency", "maximum", "restore_rate")
    set_up_shop(simulated, **{name: before[name] for name in kept})


def test_processes_that_share_a_bucket_are_never_refused_for_haste(
    database: Database, database_url: str, small_bucket: str
) -> None:
    """They begin with a bucket that is nearly empty, and all their calls together ask for more than
    it holds."""
    variants = catalogue(small_bucket)
    ids = [each.variant_id for each in variants]
    assert drain(database_url, small_bucket, ids, 10) == 10
    writes = [(each.product_id, each.variant_id) for each in variants[:120]]
    went = at_once(
        write_many, *[(database_url, small_bucket, writes[part::3], 2) for part in range(3)]
    )
    totals = shop_totals(small_bucket)
    assert went == [40, 40, 40]
    assert (totals["throttled"], totals["calls"]["write"]) == (0, 120)
    assert totals["spent"] > 2 * totals["maximum"] - 800
    with database.reading() as session:
        found = shop_status(session, NAME)
    assert found is not None
    assert (found.bucket.maximum, found.bucket.restore_rate, found.refusals) == (2000.0, 500.0, ())
