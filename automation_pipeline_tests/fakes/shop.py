"""A shop in memory: `pricing.models.shop.Shop`, run through the same contract as the real client."""

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
# What `fail_once` and `fail_always` take instead of a product.
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
    """A bucket that fills by itself, as `seconds` passes."""

    bucket: BucketStatus
    seconds: Callable[[], float]
    told_at: float

    def take(self, asked: float, used: float) -> float | None:
        """None, and those that the call uses are gone; or how long to wait until there are as many
        as it asks for."""
        now = self.seconds()
        come_back = (now - self.told_at) * self.bucket.restore_rate
        available = min(self.bucket.available + come_back, self.bucket.maximum)
        wait = (
            throttle_seconds(asked, available, self.bucket.restore_rate)
            if asked > available
            else None
        )
        self.bucket = replace(self.bucket, available=available if wait else available - used)
        self.told_at = now
        return wait


class FakeShop:
    """Knows the variants it was given, in that order.

    `called` lists every call that reached the shop, failed ones too: its kind ("page", "prices",
    "write") and the place, the ids or the product it was about. `written` lists every write that
    took effect. `most_at_once` is how many calls were ever open together; `during_call` is awaited in
    the middle of each, with its kind and subject.
    """

    def __init__(
        self,
        *variants: Variant,
        bucket: BucketStatus | None = None,
        page_size: int = 250,
        seconds: Callable[[], float] = monotonic,
        during_call: Callable[[str, object], Awaitable[None]] | None = None,
    ) -> None:
        self.called: list[tuple[str, object]] = []
        self.written: list[PriceWrite] = []
        self.most_at_once = 0
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

    def put(self, *variants: Variant) -> None:
        self._variants |= {each.variant_id: each for each in variants}

    def remove(self, variant_id: str) -> None:
        del self._variants[variant_id]

    def edit(self, variant_id: str, **changed: object) -> None:
        """By hand, as somebody in the shop would: `amount`, `compare_at`, or any other field of a
        variant."""
        self._variants[variant_id] = replace(self._variants[variant_id], **changed)

    def price(self, variant_id: str) -> Price | None:
        return self._variants[variant_id].price

    def amounts(self) -> dict[str, int | None]:
        return {variant_id: each.amount for variant_id, each in self._variants.items()}

    def times(self, kind: str, subject: object = None) -> int:
        """How often the shop was called so, about this if it is given."""
        return sum(kind == its_kind and subject in {None, its} for its_kind, its in self.called)

    def times_written(self, variant_id: str) -> int:
        return sum(write.variant_id == variant_id for write in self.written)

    def fail_once(
        self, subject: str, *signals: FailureSignal, retry_after_seconds: float | None = None
    ) -> None:
        """The next writes to this product (or reads: PAGES, PRICES) fail so, one each, and have no
        effect."""
        self._once.setdefault(subject, []).extend(
            (signal, retry_after_seconds) for signal in signals
        )

    def fail_always(
        self, subject: str, signal: FailureSignal, *, retry_after_seconds: float | None = None
    ) -> None:
        self._always[subject] = signal, retry_after_seconds

    def fail_no_more(self, subject: str) -> None:
        self._once.pop(subject, None)
        self._always.pop(subject, None)

    def refuse_everything(
        self, signal: FailureSignal | None, *, retry_after_seconds: float | None = None
    ) -> None:
        """Until it is called again with None."""
        self._refusal = None if signal is None else (signal, retry_after_seconds)

    def lose_answer_once(self, product_id: str) -> None:
        """The next write to the product takes effect, and nobody hears of it."""
        self._lost.append(product_id)

    def refuse(
        self, variant_id: str, code: str = "INVALID_INPUT", message: str = "Price is not allowed"
    ) -> None:
        """A complaint about this one variant, whenever it is written."""
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
        failure = await self._met("page", after, PAGES, COSTS.page, used=3 + 3 * len(shown))
        if failure is not None:
            return self._failed(failure)
        return self._told(CataloguePage(shown, str(end) if end < len(found) else None))

    async def prices(self, variant_ids: Sequence[str]) -> CallResult[Prices]:
        assert len(variant_ids) <= MAX_PRICES_PER_READ
        cost = COSTS.prices + COSTS.each_price * len(variant_ids)
        failure = await self._met("prices", tuple(variant_ids), PRICES, cost)
        if failure is not None:
            return self._failed(failure)
        known = {each: self._variants[each].price for each in variant_ids if each in self._variants}
        return self._told(
            {variant_id: price for variant_id, price in known.items() if price is not None}
        )

    async def write(self, product_id: str, writes: Sequence[PriceWrite]) -> CallResult[Written]:
        assert 0 < len(writes) <= MAX_PRICES_PER_WRITE
        failure = await self._met("write", product_id, product_id, COSTS.write)
        if failure is not None:
            return self._failed(failure)
        written = {write.variant_id: self._set(product_id, write) for write in writes}
        if product_id in self._lost:
            self._lost.remove(product_id)
            return self._failed(classify_failure(LOST, "The shop did not answer in time."))
        return self._told(written)

    def _set(self, product_id: str, write: PriceWrite) -> Price | CallFailure:
        known = self._variants.get(write.variant_id)
        if all(each.product_id != product_id for each in self._variants.values()):
            return _complaint("PRODUCT_DOES_NOT_EXIST")
        if known is None:
            return _complaint("PRODUCT_VARIANT_DOES_NOT_EXIST")
        if known.product_id != product_id:
            return _complaint("MUST_BE_FOR_THIS_PRODUCT")
        if write.variant_id in self._refused:
            return self._refused[write.variant_id]
        if write.price.unit_amount < 0:
            return _complaint("NEGATIVE_PRICE_VALUE")
        self.written.append(write)
        compare_at = write.price.compare_at if write.writes_compare_at else known.compare_at
        self.edit(write.variant_id, amount=write.price.unit_amount, compare_at=compare_at)
        return Price(write.price.unit_amount, known.currency, compare_at)

    async def _met(
        self, kind: str, subject: object, script: str, asked: float, *, used: float | None = None
    ) -> CallFailure | None:
        """The call, with whatever lies between asking and answering; a failure if it was to
        fail."""
        self.called.append((kind, subject))
        self._open += 1
        self.most_at_once = max(self.most_at_once, self._open)
        try:
            await (self._during_call(kind, subject) if self._during_call else asyncio.sleep(0))
        finally:
            self._open -= 1
        once = self._once.get(script)
        scripted = self._refusal or (once.pop(0) if once else self._always.get(script))
        if scripted is not None:
            return classify_failure(
                scripted[0], f"The shop fails as the test asks ({kind}).", scripted[1]
            )
        wait = self._points.take(asked, asked if used is None else used) if self._points else None
        return (
            classify_failure(THROTTLED, "The shop is busy: it holds us back for a while.", wait)
            if wait
            else None
        )

    def _failed(self, failure: CallFailure) -> CallResult:
        return CallResult(None, failure, self._bucket, self._request_id)

    def _told(self, value: Value) -> CallResult[Value]:
        return CallResult(value, None, self._bucket, self._request_id)

    @property
    def _bucket(self) -> BucketStatus | None:
        return self._points.bucket if self._points else None

    @property
    def _request_id(self) -> str:
        return f"request-{len(self.called)}"


def _complaint(code: str) -> CallFailure:
    return classify_failure(
        FailureSignal(user_error=True, code=code), f"The shop refuses the price: {code}."
    )


def shelf(products: int, variants: int = 1, *, amount: int = 1000) -> Iterable[Variant]:
    """Product 1 with the variants 101, 102 ..., product 2 with 201, 202 ..., each at the same
    price."""
    for product in range(1, products + 1):
        for number in range(1, variants + 1):
            yield variant(
                str(product * 100 + number), str(product), amount, sku=f"SKU-{product}-{number}"
            )


def storefront(shop: FakeShop, *, meter: Meter | None = None, **shop_options: object) -> Storefront:
    """For stages: the same shop, however often it is opened."""
    return Storefront(
        "shop.test", lambda: nullcontext(shop), ShopOptions(**shop_options), meter or Meter()
    )
