"""A shop in memory (`pricing.models.shop.Shop`). `pricing/test_shop_contract.py` runs it and the real
client through the same tests."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from time import monotonic
from typing import TypeVar

from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.pricing.models.shop import (
    MAX_PRICES_PER_READ,
    MAX_PRICES_PER_WRITE,
    BucketStatus,
    CallCosts,
    CallFailure,
    CallResult,
    CataloguePage,
    FailureSignal,
    Price,
    Prices,
    PriceWrite,
    ShopOptions,
    Storefront,
    Variant,
    Written,
    classify_failure,
)
from automation_pipeline.pricing.rules.runs import throttle_seconds

COSTS = CallCosts(page=753, each_price=1, write=10, prices=1)
# Subjects of `fail_once` and `fail_always` that are no product.
PAGES, PRICES = "pages", "prices"
LOST = FailureSignal(lost=True)
THROTTLED = FailureSignal(code="THROTTLED")

Value = TypeVar("Value")
_Script = tuple[FailureSignal, float | None]


def variant(
    variant_id: str = "11",
    product_id: str = "1",
    amount: int | None = 1999,
    currency: str = "EUR",
    **more: object,
) -> Variant:
    return Variant(
        variant_id=variant_id, product_id=product_id, amount=amount, currency=currency, **more
    )


@dataclass
class _Points:
    """A leaky bucket, filled by the clock `seconds`."""

    bucket: BucketStatus
    seconds: Callable[[], float]
    updated_at: float

    def take(self, requested: float, used: float) -> float | None:
        """Take the points that a call uses and return None; or return the seconds until there are as
        many points as it requests."""
        now = self.seconds()
        restored = (now - self.updated_at) * self.bucket.restore_rate
        available = min(self.bucket.available + restored, self.bucket.maximum)
        wait = (
            throttle_seconds(requested, available, self.bucket.restore_rate)
            if requested > available
            else None
        )
        self.bucket = replace(self.bucket, available=available if wait else available - used)
        self.updated_at = now
        return wait


class FakeShop:
    """Contains the variants that a test has added, in their order.

    `calls` lists the kind ("page", "prices", "write") and the subject (cursor, ids, product id) of
    every call, including failed calls. `written` lists every write that took effect.
    `max_concurrent` is the highest number of concurrent calls; `during_call` is awaited during each
    call, with its kind and subject.
    """

    def __init__(
        self,
        *variants: Variant,
        bucket: BucketStatus | None = None,
        page_size: int = 250,
        seconds: Callable[[], float] = monotonic,
        during_call: Callable[[str, object], Awaitable[None]] | None = None,
    ) -> None:
        self.calls: list[tuple[str, object]] = []
        self.written: list[PriceWrite] = []
        self.max_concurrent = 0
        self._variants = {each.variant_id: each for each in variants}
        self._seconds = seconds
        self._points = None if bucket is None else _Points(bucket, seconds, seconds())
        self._page_size = page_size
        self._during_call = during_call
        self._open = 0
        self._once: dict[str, list[_Script]] = {}
        self._always: dict[str, _Script] = {}
        self._lost: list[str] = []
        self._refused: dict[str, CallFailure] = {}
        self._refusal: _Script | None = None

    @property
    def costs(self) -> CallCosts:
        return COSTS

    def set_bucket(self, bucket: BucketStatus | None) -> None:
        self._points = None if bucket is None else _Points(bucket, self._seconds, self._seconds())

    def add(self, *variants: Variant) -> None:
        self._variants |= {each.variant_id: each for each in variants}

    def remove(self, variant_id: str) -> None:
        del self._variants[variant_id]

    def edit(self, variant_id: str, **changed: object) -> None:
        """Change `amount`, `compare_at` or any other field of a variant, as an editor of the shop
        would."""
        self._variants[variant_id] = replace(self._variants[variant_id], **changed)

    def price(self, variant_id: str) -> Price | None:
        return self._variants[variant_id].price

    def amounts(self) -> dict[str, int | None]:
        return {variant_id: each.amount for variant_id, each in self._variants.items()}

    def call_count(self, kind: str, subject: object = None) -> int:
        """The number of calls of the kind, of those about the subject if it is given."""
        return sum(
            kind == called_kind and subject in {None, called_subject}
            for called_kind, called_subject in self.calls
        )

    def write_count(self, variant_id: str) -> int:
        return sum(write.variant_id == variant_id for write in self.written)

    def fail_once(
        self, subject: str, *signals: FailureSignal, retry_after_seconds: float | None = None
    ) -> None:
        """The next writes to this product (or reads: PAGES, PRICES) fail with these signals, one per
        call, and have no effect."""
        self._once.setdefault(subject, []).extend(
            (signal, retry_after_seconds) for signal in signals
        )

    def fail_always(
        self, subject: str, signal: FailureSignal, *, retry_after_seconds: float | None = None
    ) -> None:
        self._always[subject] = signal, retry_after_seconds

    def stop_failing(self, subject: str) -> None:
        self._once.pop(subject, None)
        self._always.pop(subject, None)

    def refuse_everything(
        self, signal: FailureSignal | None, *, retry_after_seconds: float | None = None
    ) -> None:
        """Every call fails with this signal, until this method is called with None."""
        self._refusal = None if signal is None else (signal, retry_after_seconds)

    def lose_answer_once(self, product_id: str) -> None:
        """The next write to the product takes effect, but its answer is lost."""
        self._lost.append(product_id)

    def refuse(
        self, variant_id: str, code: str = "INVALID_INPUT", message: str = "Price is not allowed"
    ) -> None:
        """Every write of this variant gets a user error."""
        signal = FailureSignal(user_error=True, code=code)
        self._refused[variant_id] = classify_failure(
            signal, f"The shop refuses the price: {message}, {code}."
        )

    def accept(self, variant_id: str) -> None:
        self._refused.pop(variant_id, None)

    async def check(self) -> None:
        if self._refusal is None:
            return
        failure = classify_failure(
            self._refusal[0], "The shop refuses everything.", self._refusal[1]
        )
        if failure.retryable:
            raise TransientError(failure.message, retry_after_seconds=failure.retry_after_seconds)
        raise PermanentError(failure.message)

    async def page(self, after: str | None) -> CallResult[CataloguePage]:
        begin = int(after or 0)
        end = begin + self._page_size
        found = tuple(self._variants.values())
        shown = found[begin:end]
        failure = await self._call("page", after, PAGES, COSTS.page, used=3 + 3 * len(shown))
        if failure is not None:
            return self._failed(failure)
        return self._answered(CataloguePage(shown, str(end) if end < len(found) else None))

    async def prices(self, variant_ids: Sequence[str]) -> CallResult[Prices]:
        assert len(variant_ids) <= MAX_PRICES_PER_READ
        cost = COSTS.prices + COSTS.each_price * len(variant_ids)
        failure = await self._call("prices", tuple(variant_ids), PRICES, cost)
        if failure is not None:
            return self._failed(failure)
        known = {each: self._variants[each].price for each in variant_ids if each in self._variants}
        return self._answered(
            {variant_id: price for variant_id, price in known.items() if price is not None}
        )

    async def write(self, product_id: str, writes: Sequence[PriceWrite]) -> CallResult[Written]:
        assert 0 < len(writes) <= MAX_PRICES_PER_WRITE
        failure = await self._call("write", product_id, product_id, COSTS.write)
        if failure is not None:
            return self._failed(failure)
        written = {write.variant_id: self._set(product_id, write) for write in writes}
        if product_id in self._lost:
            self._lost.remove(product_id)
            return self._failed(classify_failure(LOST, "The shop did not answer in time."))
        return self._answered(written)

    def _set(self, product_id: str, write: PriceWrite) -> Price | CallFailure:
        known = self._variants.get(write.variant_id)
        if all(each.product_id != product_id for each in self._variants.values()):
            return _user_error("PRODUCT_DOES_NOT_EXIST")
        if known is None:
            return _user_error("PRODUCT_VARIANT_DOES_NOT_EXIST")
        if known.product_id != product_id:
            return _user_error("MUST_BE_FOR_THIS_PRODUCT")
        if write.variant_id in self._refused:
            return self._refused[write.variant_id]
        if write.price.unit_amount < 0:
            return _user_error("NEGATIVE_PRICE_VALUE")
        self.written.append(write)
        compare_at = write.price.compare_at if write.writes_compare_at else known.compare_at
        self.edit(write.variant_id, amount=write.price.unit_amount, compare_at=compare_at)
        return Price(write.price.unit_amount, known.currency, compare_at)

    async def _call(
        self,
        kind: str,
        subject: object,
        script: str,
        requested: float,
        *,
        used: float | None = None,
    ) -> CallFailure | None:
        """Record the call, await `during_call`, and return the failure that a test has set."""
        self.calls.append((kind, subject))
        self._open += 1
        self.max_concurrent = max(self.max_concurrent, self._open)
        try:
            await (self._during_call(kind, subject) if self._during_call else asyncio.sleep(0))
        finally:
            self._open -= 1
        once = self._once.get(script)
        scripted = self._refusal or (once.pop(0) if once else self._always.get(script))
        if scripted is not None:
            return classify_failure(
                scripted[0], f"The shop fails as the test specifies ({kind}).", scripted[1]
            )
        wait = (
            self._points.take(requested, requested if used is None else used)
            if self._points
            else None
        )
        return (
            classify_failure(THROTTLED, "The shop is busy and delays further calls.", wait)
            if wait
            else None
        )

    def _failed(self, failure: CallFailure) -> CallResult:
        return CallResult(None, failure, self._bucket, self._request_id)

    def _answered(self, value: Value) -> CallResult[Value]:
        return CallResult(value, None, self._bucket, self._request_id)

    @property
    def _bucket(self) -> BucketStatus | None:
        return self._points.bucket if self._points else None

    @property
    def _request_id(self) -> str:
        return f"request-{len(self.calls)}"


def _user_error(code: str) -> CallFailure:
    return classify_failure(
        FailureSignal(user_error=True, code=code), f"The shop refuses the price: {code}."
    )


def product_variants(products: int, variants: int = 1, *, amount: int = 1000) -> Iterable[Variant]:
    """Product 1 with the variants 101, 102 ..., product 2 with 201, 202 ..., all at the same price."""
    for product in range(1, products + 1):
        for number in range(1, variants + 1):
            yield variant(
                str(product * 100 + number), str(product), amount, sku=f"SKU-{product}-{number}"
            )


def storefront(shop: FakeShop, *, meter: Meter | None = None, **shop_options: object) -> Storefront:
    """A storefront that opens this fake each time."""
    return Storefront(
        "shop.test", lambda: nullcontext(shop), ShopOptions(**shop_options), meter or Meter()
    )
