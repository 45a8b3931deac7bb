"""Applying some targets: how many calls go at once, and that each target is settled once whatever
the shop does."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.clock import SystemClock
from automation_pipeline.pricing import shop as module
from automation_pipeline.pricing.models.rules import OnDrift
from automation_pipeline.pricing.models.shop import (
    CallResult,
    CallWithdrawnError,
    FailureSignal,
    Price,
    ShopRestingError,
)
from automation_pipeline.pricing.ports import ApplyContext
from automation_pipeline.pricing.rules.runs import (
    AppliedResult,
    ApplyTerms,
    AttemptProgress,
    FailedResult,
    RequeuedResult,
    TargetOutcome,
    WorkTarget,
)
from automation_pipeline.pricing.shop import ApplyHalt, apply_chunk
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.shop import LOST, PRICES, FakeShop, shelf, storefront
from automation_pipeline_tests.waiting import run

HASTE, BUSY, GONE, REFUSED = (
    FailureSignal(status=429),
    FailureSignal(status=500),
    FailureSignal(status=404),
    FailureSignal(status=401),
)
TERMS = ApplyTerms(OnDrift.REFUSE, None)
BEGAN = datetime(2026, 5, 4, tzinfo=UTC)


async def straight(
    call: Callable[[], Awaitable[CallResult[object]]],
    _cost: float,
    _context: object,
    *,
    is_wanted: Callable[[], Awaitable[bool]],
    **_world: object,
) -> CallResult[object]:
    """Without a turn to be waited for."""
    if not await is_wanted():
        raise CallWithdrawnError("Not any more.")
    return await call()


@pytest.fixture
def no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "call_shop", straight)


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
        began_at=BEGAN,
    )


def targets(products: int, variants: int = 1) -> list[WorkTarget]:
    return [
        target(each.variant_id, each.product_id, number)
        for number, each in enumerate(shelf(products, variants), 1)
    ]


def applied(
    shop: FakeShop,
    chosen: Sequence[WorkTarget],
    *,
    at_once: int = 5,
    is_wanted: Callable[[], bool] = lambda: True,
) -> tuple[dict[int, TargetOutcome], ApplyHalt | None]:
    """What was settled by target, each of them once."""
    settled: list[TargetOutcome] = []

    class Owner:
        def keep(self) -> bool:
            return is_wanted()

        def save(self, outcomes: Sequence[TargetOutcome]) -> None:
            settled.extend(outcomes)

    front = storefront(shop, calls_at_once=at_once)
    context = ApplyContext(front, Database("sqlite://"), SystemClock(), shop)
    halt = run(apply_chunk(chosen, TERMS, Owner(), context))
    assert sorted(one.target.id for one in settled) == [one.id for one in chosen]
    return {one.target.id: one for one in settled}, halt


def together(shop: FakeShop, count: int) -> None:
    """The first so many writes are in the shop at the same time."""
    first = asyncio.Barrier(count)

    async def meanwhile(kind: str, _subject: object) -> None:
        if kind == "write" and shop.times("write") <= count:
            await first.wait()
        await asyncio.sleep(0)

    shop._meanwhile = meanwhile


@pytest.mark.usefixtures("no_turns")
def test_while_the_shop_refuses_half_as_many_calls_go_at_once() -> None:
    shop = FakeShop(*shelf(20))
    together(shop, 4)
    later: list[int] = []
    first = shop._meanwhile
    assert first is not None

    async def counted(kind: str, subject: object) -> None:
        if kind == "write" and shop.times("write") > 4:
            await asyncio.sleep(0.05)  # longer than it takes to save an outcome
            later.append(shop._open)
        await first(kind, subject)

    shop._meanwhile = counted
    for product in range(1, 5):
        shop.fail_once(str(product), HASTE)
    settled, halt = applied(shop, targets(20), at_once=4)
    assert (shop.most_at_once, max(later), halt) == (4, 2, None)
    assert sorted(number for number, one in settled.items() if isinstance(one, RequeuedResult)) == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.usefixtures("no_turns")
def test_whoever_stands_back_leaves_no_product_behind() -> None:
    """The last calls are refused too, so that nobody makes a proper one any more."""
    shop = FakeShop(*shelf(8))
    together(shop, 5)
    for product in range(1, 9):
        shop.fail_once(str(product), HASTE)
    settled, halt = applied(shop, targets(8))
    assert (len(settled), halt, shop.times("write")) == (8, None, 8)
    assert {type(one) for one in settled.values()} == {RequeuedResult}


@pytest.mark.usefixtures("no_turns")
def test_a_refusal_of_everything_halts_and_what_was_not_tried_goes_back() -> None:
    shop = FakeShop(*shelf(6))
    shop.fail_once("2", REFUSED)
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
    assert shop.times("write") == 2


def test_what_a_resting_shop_leaves_waits_as_long_as_the_shop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def rests(
        call: Callable[[], Awaitable[CallResult[object]]],
        cost: float,
        _context: object,
        **_how: object,
    ) -> CallResult[object]:
        if cost == shop.costs.write:
            raise ShopRestingError("It rests.", retry_after_seconds=42.0)
        return await call()

    monkeypatch.setattr(module, "call_shop", rests)
    shop = FakeShop(*shelf(3))
    settled, halt = applied(shop, targets(3))
    assert halt == ApplyHalt(resting_seconds=42.0)
    assert {
        (one.wait_seconds, one.failure)
        for one in settled.values()
        if isinstance(one, RequeuedResult)
    } == {(42.0, None)}
    assert shop.times("write") == 0


@pytest.mark.usefixtures("no_turns")
def test_what_is_not_wanted_any_more_goes_back_untried() -> None:
    shop = FakeShop(*shelf(4))
    settled, halt = applied(shop, targets(4), at_once=1, is_wanted=lambda: shop.times("write") < 2)
    assert [type(settled[number]) for number in range(1, 5)] == [
        AppliedResult,
        AppliedResult,
        RequeuedResult,
        RequeuedResult,
    ]
    assert (halt, settled[3]) == (None, RequeuedResult(targets(4)[2], 0.0, AttemptProgress()))


@pytest.mark.usefixtures("no_turns")
def test_a_failed_read_fails_all_and_leaves_no_doubt_about_earlier_writes() -> None:
    shop = FakeShop(*shelf(2))
    shop.fail_once(PRICES, LOST)
    settled, _ = applied(shop, targets(2))
    assert [(type(one), one.outcome_unknown) for one in settled.values()] == [
        (RequeuedResult, False)
    ] * 2
    assert shop.times("write") == 0


@pytest.mark.usefixtures("no_turns")
def test_a_target_without_a_variant_is_given_up_without_a_call() -> None:
    shop = FakeShop()
    settled, _ = applied(shop, [target(None, "1", 1)])
    assert (type(settled[1]), shop.called) == (FailedResult, [])


@pytest.mark.usefixtures("no_turns")
def test_a_variant_that_the_answer_is_silent_about_is_read_again_before_anything_else() -> None:
    class Silent(FakeShop):
        async def write(self, product_id: str, writes: Sequence[object]) -> CallResult[object]:
            return CallResult(value={})

    settled, _ = applied(Silent(*shelf(1)), targets(1))
    one = settled[1]
    assert isinstance(one, RequeuedResult)
    assert (one.outcome_unknown, one.progress.attempts) == (True, 1)


@given(
    st.lists(
        st.tuples(st.integers(1, 12), st.sampled_from([HASTE, BUSY, GONE, LOST])), max_size=20
    ),
    st.integers(1, 6),
    st.booleans(),
)
def test_every_target_is_settled_once_whatever_the_shop_does(
    faults: list[tuple[int, FailureSignal]], at_once: int, bursts: bool
) -> None:
    shop = FakeShop(*shelf(12))
    for product, signal in faults:
        shop.fail_once(str(product), signal)
    if bursts:
        together(shop, at_once)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "call_shop", straight)
        settled, halt = applied(shop, targets(12), at_once=at_once)
    assert halt is None
    assert shop.most_at_once <= at_once
    assert sum(isinstance(one, AppliedResult) for one in settled.values()) == len(shop.written)
