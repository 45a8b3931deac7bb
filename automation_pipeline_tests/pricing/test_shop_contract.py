"""Contract tests of `pricing.models.shop.Shop`, run on the fake and on the real client against the
simulator."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx
import pytest

from automation_pipeline.clients.shop import ShopifyShop
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.pricing.models.shop import (
    MAX_PRICES_PER_READ,
    BucketStatus,
    CallFailure,
    FailureKind,
    FailureSignal,
    Price,
    PriceWrite,
    Shop,
    Variant,
)
from automation_pipeline_tests.fakes.shop import (
    LOST,
    PAGES,
    PRICES,
    THROTTLED,
    FakeShop,
    product_variants,
    storefront,
    variant,
)
from automation_pipeline_tests.simulator_control import (
    NO_CERTIFICATES,
    SHOP_TOKEN,
    add_faults,
    configure_shop,
    shop_totals,
)

Result = TypeVar("Result")

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
UNKNOWN_VARIANT = "999999999"
DRAFTS = {"5", "7"}


@dataclass(frozen=True)
class ShopSetup:
    """The shop under test. `stock` creates products with two variants each, some of them drafts;
    `fail_all` makes every later call fail; `drop_answer` loses the answer to one write, before or
    after its effect; `limit_bucket` sets a bucket that does not refill; `written` counts the writes to a
    variant."""

    stock: Callable[[int], None]
    opened: Callable[[], Any]
    fail_all: Callable[[FailureSignal, dict[str, object]], None]
    drop_answer: Callable[[str, bool], None]
    limit_bucket: Callable[[float], None]
    written: Callable[[str], int]

    def call(self, operation: Callable[[Shop], Awaitable[Result]]) -> Result:
        async def call_operation() -> Result:
            async with self.opened() as shop:
                return await operation(shop)

        return asyncio.run(call_operation())

    def catalogue(self) -> tuple[Variant, ...]:
        async def pages(shop: Shop) -> tuple[Variant, ...]:
            found: list[Variant] = []
            after: str | None = None
            while True:
                called = await shop.page(after)
                assert called.value is not None, called.failure
                found += called.value.variants
                after = called.value.after
                if after is None:
                    return tuple(found)

        return self.call(pages)

    def two_variants(self) -> tuple[Variant, Variant]:
        """Two variants of one product."""
        first, second, *_ = self.catalogue()
        assert first.product_id == second.product_id
        return first, second

    def price(self, variant: Variant) -> Price:
        return self.call(lambda shop: shop.prices([variant.variant_id])).value[variant.variant_id]

    def write(self, product_id: str, *writes: PriceWrite) -> Any:
        return self.call(lambda shop: shop.write(product_id, writes))


@pytest.fixture(params=["fake", "shopify"])
def shop_setup(request: pytest.FixtureRequest) -> Iterator[ShopSetup]:
    if request.param == "fake":
        yield in_memory()
        return
    with over_http(request.getfixturevalue("simulator_url")) as shop_setup:
        yield shop_setup


def in_memory() -> ShopSetup:
    fake = FakeShop(bucket=BucketStatus(2000, 2000, 100))

    def stock(products: int) -> None:
        fake.add(
            *(
                replace(each, is_active=each.product_id not in DRAFTS)
                for each in product_variants(products, 2)
            )
        )

    def fail_all(signal: FailureSignal, rule: dict[str, object]) -> None:
        fake.refuse_everything(signal, retry_after_seconds=rule.get("retry_after"))

    def drop_answer(product_id: str, after: bool) -> None:
        (fake.lose_answer_once if after else lambda product: fake.fail_once(product, LOST))(
            product_id
        )

    stock(8)
    return ShopSetup(
        stock=stock,
        opened=lambda: nullcontext(fake),
        fail_all=fail_all,
        drop_answer=drop_answer,
        limit_bucket=lambda points: fake.set_bucket(BucketStatus(points, points, 0.05)),
        written=fake.write_count,
    )


@contextmanager
def over_http(url: str) -> Iterator[ShopSetup]:
    def opened() -> aclosing[ShopifyShop]:
        transport = httpx.AsyncHTTPTransport(verify=NO_CERTIFICATES)
        return aclosing(
            ShopifyShop(url, SHOP_TOKEN, version="2026-10", now=lambda: NOW, transport=transport)
        )

    def stock(products: int) -> None:
        configure_shop(url, products=products, variants_per_product=2, currency="EUR")

    before = shop_totals(url)
    stock(8)
    try:
        yield ShopSetup(
            stock=stock,
            opened=opened,
            fail_all=lambda _, rule: add_faults(url, {"route": "shop.graphql", **rule}),
            drop_answer=lambda product_id, after: add_faults(
                url,
                {
                    "route": "shop.graphql",
                    "item": product_id,
                    "drop": True,
                    "after": after,
                    "first": 1,
                },
            ),
            limit_bucket=lambda points: configure_shop(url, maximum=points, restore_rate=0.05),
            written=lambda variant_id: shop_totals(url)["writes"].get(variant_id, 0),
        )
    finally:
        kept = ("products", "variants_per_product", "currency", "maximum", "restore_rate")
        configure_shop(url, **{name: before[name] for name in kept})


def setting(
    variant: Variant, amount: int, compare_at: int | None = None, *, writes_compare_at: bool = False
) -> PriceWrite:
    return PriceWrite(
        variant.variant_id,
        Price(amount, variant.currency, compare_at),
        writes_compare_at=writes_compare_at,
    )


def kinds(written: dict[str, Price | CallFailure]) -> dict[str, object]:
    return {
        key: result.kind if isinstance(result, CallFailure) else result.unit_amount
        for key, result in written.items()
    }


def test_catalogue_pages_have_a_stable_order(shop_setup: ShopSetup) -> None:
    shop_setup.stock(150)
    found = shop_setup.catalogue()
    assert len(found) == len({each.variant_id for each in found}) == 300
    first = shop_setup.call(lambda shop: shop.page(None)).value
    assert tuple(first.variants) == found[: len(first.variants)]
    assert len(first.variants) < 300


def test_the_catalogue_includes_inactive_products(shop_setup: ShopSetup) -> None:
    assert {each.is_active for each in shop_setup.catalogue()} == {True, False}


def test_a_read_price_equals_that_of_the_catalogue(shop_setup: ShopSetup) -> None:
    found = shop_setup.catalogue()
    result = shop_setup.call(lambda shop: shop.prices([each.variant_id for each in found])).value
    assert result == {each.variant_id: each.price for each in found}


def test_unknown_variants_have_no_price(shop_setup: ShopSetup) -> None:
    variant, _ = shop_setup.two_variants()
    assert set(
        shop_setup.call(lambda shop: shop.prices([UNKNOWN_VARIANT, variant.variant_id])).value
    ) == {variant.variant_id}
    assert shop_setup.call(lambda shop: shop.prices([UNKNOWN_VARIANT])).value == {}


def test_a_written_price_is_confirmed_and_read_back(shop_setup: ShopSetup) -> None:
    one, other = shop_setup.two_variants()
    written = shop_setup.write(one.product_id, setting(one, 1234), setting(other, 4321)).value
    assert kinds(written) == {one.variant_id: 1234, other.variant_id: 4321}
    assert (shop_setup.price(one), shop_setup.price(other)) == (
        written[one.variant_id],
        written[other.variant_id],
    )
    assert shop_setup.written(one.variant_id) == shop_setup.written(other.variant_id) == 1


def test_a_compare_at_price_is_set_kept_and_cleared(shop_setup: ShopSetup) -> None:
    variant, _ = shop_setup.two_variants()
    for write, kept_compare_at in (
        (setting(variant, 1000, 2000, writes_compare_at=True), 2000),
        (setting(variant, 1100, 3000), 2000),
        (setting(variant, 1200), 2000),
        (setting(variant, 1300, writes_compare_at=True), None),
        (setting(variant, 1400, 5000), None),
    ):
        written = shop_setup.write(variant.product_id, write).value[variant.variant_id]
        assert (
            written
            == shop_setup.price(variant)
            == Price(write.price.unit_amount, variant.currency, kept_compare_at)
        )


@pytest.mark.parametrize(
    ("variant_id", "amount", "kind"),
    [(UNKNOWN_VARIANT, 100, FailureKind.NOT_FOUND), (None, -100, FailureKind.VALIDATION)],
)
def test_a_refused_price_does_not_affect_others_in_the_same_write(
    shop_setup: ShopSetup, variant_id: str | None, amount: int, kind: FailureKind
) -> None:
    good, bad = shop_setup.two_variants()
    refused = replace(setting(bad, amount), variant_id=variant_id or bad.variant_id)
    written = shop_setup.write(good.product_id, refused, setting(good, 1234)).value
    assert kinds(written) == {refused.variant_id: kind, good.variant_id: 1234}
    failure = written[refused.variant_id]
    assert (failure.retryable, failure.outcome_unknown) == (False, False)
    assert (shop_setup.price(good).unit_amount, shop_setup.price(bad)) == (1234, bad.price)


def test_a_variant_of_another_product_is_refused(shop_setup: ShopSetup) -> None:
    first, *_, foreign_variant = shop_setup.catalogue()
    written = shop_setup.write(first.product_id, setting(foreign_variant, 100)).value
    assert kinds(written) == {foreign_variant.variant_id: FailureKind.VALIDATION}
    assert shop_setup.price(foreign_variant) == foreign_variant.price


def test_writing_to_an_unknown_product_is_refused(shop_setup: ShopSetup) -> None:
    one, other = shop_setup.two_variants()
    written = shop_setup.write(UNKNOWN_VARIANT, setting(one, 1), setting(other, 2)).value
    assert kinds(written) == dict.fromkeys(
        (one.variant_id, other.variant_id), FailureKind.NOT_FOUND
    )
    assert shop_setup.price(one) == one.price


FAILURES = [
    (FailureSignal(status=429), {"status": 429, "retry_after": 7}, FailureKind.RATE_LIMIT, 7),
    (FailureSignal(status=503), {"status": 503}, FailureKind.SERVER, None),
    (FailureSignal(status=500), {"status": 500}, FailureKind.SERVER, None),
    (FailureSignal(status=401), {"status": 401}, FailureKind.AUTHENTICATION, None),
    (FailureSignal(status=402), {"status": 402}, FailureKind.SHOP_CLOSED, None),
    (FailureSignal(status=403), {"status": 403}, FailureKind.AUTHORIZATION, None),
    (FailureSignal(status=423), {"status": 423}, FailureKind.SHOP_CLOSED, None),
    (THROTTLED, {"body": "throttled"}, FailureKind.RATE_LIMIT, ...),
    (LOST, {"drop": True}, FailureKind.NETWORK, None),
]


@pytest.mark.parametrize(
    ("signal", "rule", "kind", "wait"), FAILURES, ids=lambda value: str(value)[:24]
)
def test_every_failure_is_returned_as_a_value_and_writes_nothing(
    shop_setup: ShopSetup,
    signal: FailureSignal,
    rule: dict[str, object],
    kind: FailureKind,
    wait: object,
) -> None:
    variant, _ = shop_setup.two_variants()
    shop_setup.fail_all(signal, rule)

    async def call_everything(shop: Shop) -> Sequence[Any]:
        ids = [variant.variant_id]
        write = shop.write(variant.product_id, [setting(variant, 1234)])
        return await shop.page(None), await shop.prices(ids), await write

    for called in shop_setup.call(call_everything):
        assert (called.value, called.failure.kind) == (None, kind)
        assert called.is_throttled is (kind is FailureKind.RATE_LIMIT)
        assert wait is ... or called.failure.retry_after_seconds == wait
        assert SHOP_TOKEN not in called.failure.message
        assert "/admin" not in called.failure.message
    assert shop_setup.written(variant.variant_id) == 0


@pytest.mark.parametrize("after", [True, False])
def test_a_lost_answer_has_an_unknown_outcome(shop_setup: ShopSetup, after: bool) -> None:
    variant, _ = shop_setup.two_variants()
    shop_setup.drop_answer(variant.product_id, after)
    failure = shop_setup.write(variant.product_id, setting(variant, 1234)).failure
    assert (failure.kind, failure.retryable, failure.outcome_unknown) == (
        FailureKind.NETWORK,
        True,
        True,
    )
    assert (
        shop_setup.price(variant).unit_amount == 1234,
        shop_setup.written(variant.variant_id),
    ) == (
        after,
        int(after),
    )


def test_a_throttled_call_has_a_retry_after(shop_setup: ShopSetup) -> None:
    variant, _ = shop_setup.two_variants()
    shop_setup.limit_bucket(15)
    assert shop_setup.write(variant.product_id, setting(variant, 1234)).failure is None
    throttled = shop_setup.write(variant.product_id, setting(variant, 4321))
    assert throttled.is_throttled
    assert 1 < throttled.failure.retry_after_seconds <= 200
    assert (throttled.bucket.maximum, throttled.bucket.available < 10) == (15, True)
    assert shop_setup.written(variant.variant_id) == 1


def test_every_answer_has_a_bucket_status_and_a_request_id(shop_setup: ShopSetup) -> None:
    variant, _ = shop_setup.two_variants()
    called = shop_setup.write(variant.product_id, setting(variant, 1234))
    assert called.bucket.maximum == 2000
    assert 0 <= called.bucket.available <= 2000
    assert called.bucket.restore_rate == 100
    assert called.request_id


def test_no_call_costs_more_than_the_maximum_per_query(shop_setup: ShopSetup) -> None:
    async def costs(shop: Shop) -> Any:
        return shop.costs

    result = shop_setup.call(costs)
    assert 0 < result.page <= 1000
    assert 0 < result.prices + result.each_price * MAX_PRICES_PER_READ <= 1000
    assert 0 < result.write <= 1000


def test_a_healthy_shop_passes_the_check(shop_setup: ShopSetup) -> None:
    shop_setup.call(lambda shop: shop.check())


@pytest.mark.parametrize(
    ("signal", "status", "error"),
    [
        (FailureSignal(status=401), 401, PermanentError),
        (FailureSignal(status=423), 423, PermanentError),
        (FailureSignal(status=503), 503, TransientError),
        (FailureSignal(status=429), 429, TransientError),
    ],
)
def test_the_check_raises_a_transient_or_a_permanent_error(
    shop_setup: ShopSetup, signal: FailureSignal, status: int, error: type[Exception]
) -> None:
    shop_setup.fail_all(signal, {"status": status})
    with pytest.raises(error) as caught:
        shop_setup.call(lambda shop: shop.check())
    assert type(caught.value) is error


def test_the_fake_fails_as_often_as_scripted_and_records_every_call() -> None:
    fake = FakeShop(*product_variants(1))
    fake.fail_once("1", FailureSignal(status=500), FailureSignal(status=429), retry_after_seconds=5)
    fake.fail_once(PAGES, FailureSignal(status=503))
    fake.fail_always(PRICES, LOST)

    async def work() -> list[object]:
        async with storefront(fake, calls_at_once=2).open() as shop:
            writes = [await shop.write("1", [setting(variant("101"), 1)]) for _ in range(3)]
            reads = [await shop.page(None), await shop.page(None), await shop.prices(["101"])]
            return [called.failure and called.failure.kind.value for called in (*writes, *reads)]

    assert asyncio.run(work()) == ["server", "rate_limit", None, "server", None, "network"]
    assert fake.calls == [("write", "1")] * 3 + [("page", None)] * 2 + [("prices", ("101",))]
    assert (fake.call_count("write", "1"), fake.call_count("page"), fake.write_count("101")) == (
        3,
        2,
        1,
    )


def test_the_fake_refuses_single_variants_and_can_be_edited() -> None:
    fake = FakeShop(*product_variants(1, 2))
    fake.refuse("101")
    fake.edit("102", amount=777, compare_at=999)
    assert (fake.price("102"), fake.amounts()) == (
        Price(777, "EUR", 999),
        {"101": 1000, "102": 777},
    )
    writes = [setting(variant(each), 5) for each in ("101", "102")]
    written = asyncio.run(fake.write("1", writes)).value
    assert kinds(written) == {"101": FailureKind.VALIDATION, "102": 5}
    assert fake.amounts() == {"101": 1000, "102": 5}


def test_the_fake_counts_concurrent_calls_and_runs_the_hook_during_a_call() -> None:
    async def edit_price(kind: str, subject: object) -> None:
        await asyncio.sleep(0)
        if kind == "write":
            fake.edit("101", amount=42)

    fake = FakeShop(*product_variants(3), during_call=edit_price)

    async def both() -> None:
        await asyncio.gather(fake.prices(["101"]), fake.prices(["201"]))
        await fake.write("2", [setting(variant("201", "2"), 5)])

    asyncio.run(both())
    assert (fake.max_concurrent, fake.amounts()) == (2, {"101": 42, "201": 5, "301": 1000})


def test_the_bucket_of_the_fake_refills_over_time() -> None:
    times = iter([0.0, 0.0, 1.0, 21.0])
    fake = FakeShop(
        *product_variants(1), bucket=BucketStatus(10, 100, 0.5), seconds=lambda: next(times)
    )
    write = [setting(variant("101"), 5)]
    called = [asyncio.run(fake.write("1", write)) for _ in range(3)]
    assert [each.failure and each.failure.retry_after_seconds for each in called] == [
        None,
        19.0,
        None,
    ]
    assert [each.bucket.available for each in called] == [0, 0.5, 0.5]
