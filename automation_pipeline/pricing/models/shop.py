"""The shop: amounts and prices, variants, calls with their results and failures, and its port."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pydantic import Field

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError, PermanentError, TransientError
from automation_pipeline.core.json_model import Instant, JsonModel
from automation_pipeline.core.metrics import Meter

if TYPE_CHECKING:
    from automation_pipeline.storage.database import Database

LARGEST_AMOUNT = 10**12

_ZERO_DECIMALS = frozenset(
    {
        "BIF",
        "CLP",
        "DJF",
        "GNF",
        "ISK",
        "JPY",
        "KMF",
        "KRW",
        "PYG",
        "RWF",
        "UGX",
        "UYI",
        "VND",
        "VUV",
        "XAF",
        "XOF",
        "XPF",
    }
)
_THREE_DECIMALS = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})
_CURRENCY = re.compile(r"[A-Z]{3}")
_AMOUNT = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")


def is_currency(text: str) -> bool:
    return _CURRENCY.fullmatch(text) is not None


def decimals_of(currency: str) -> int:
    """The digits after the decimal point: 2 for EUR, 0 for JPY, 3 for KWD."""
    if currency in _ZERO_DECIMALS:
        return 0
    return 3 if currency in _THREE_DECIMALS else 2


def round_half_up(number: Decimal) -> int:
    """Round to the nearest whole number, and halves away from zero."""
    return int(number.to_integral_value(ROUND_HALF_UP))


def parse_amount(text: str, currency: str) -> int:
    """Minor units of a text such as "19.99", rounded to the decimals of the currency."""
    if not _AMOUNT.fullmatch(text.strip()):
        raise InvalidInputError(f"{text!r} is not an amount of {currency}.")
    return round_half_up(Decimal(text.strip()).scaleb(decimals_of(currency)))


def format_amount(amount: int, currency: str) -> str:
    """For example "19.99" in EUR, "1299" in JPY."""
    return f"{Decimal(amount).scaleb(-decimals_of(currency)):f}"


def price_text(amount: int, currency: str) -> str:
    return f"{format_amount(amount, currency)} {currency}"


@dataclass(frozen=True)
class Price:
    """`compare_at` is the struck-through price that the shop shows, if any."""

    unit_amount: int
    currency: str
    compare_at: int | None = None

    def equals(self, other: "Price", *, with_compare_at: bool) -> bool:
        """`with_compare_at` compares the compare-at prices too."""
        is_same = (self.unit_amount, self.currency) == (other.unit_amount, other.currency)
        return is_same and (not with_compare_at or self.compare_at == other.compare_at)


class PriceDocument(JsonModel):
    """A price in minor units."""

    unit_amount: int
    currency: str
    compare_at: int | None = None


def price_of(document: Mapping[str, Any]) -> Price:
    return Price(**document)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Amounts are in `currency`. `cost` is what the shop pays for the variant, if it is known."""

    variant_id: str
    product_id: str
    currency: str
    amount: int | None
    compare_at: int | None = None
    cost: int | None = None
    sku: str | None = None
    barcode: str | None = None
    variant_title: str | None = None
    title: str | None = None
    handle: str | None = None
    vendor: str | None = None
    product_type: str | None = None
    tags: tuple[str, ...] = ()
    inventory: int | None = None
    is_active: bool = True

    @property
    def price(self) -> Price | None:
        return None if self.amount is None else Price(self.amount, self.currency, self.compare_at)


class VariantField(StrEnum):
    """The fields that a selector may name."""

    SKU = "sku"
    BARCODE = "barcode"
    VARIANT_TITLE = "variantTitle"
    TITLE = "title"
    HANDLE = "handle"
    VENDOR = "vendor"
    PRODUCT_TYPE = "productType"
    INVENTORY = "inventory"
    ON_SALE = "onSale"


NUMBER_FIELDS = frozenset({VariantField.INVENTORY})
FLAG_FIELDS = frozenset({VariantField.ON_SALE})


def text_of(variant: Variant, field: VariantField) -> str | None:
    return {
        VariantField.SKU: variant.sku,
        VariantField.BARCODE: variant.barcode,
        VariantField.VARIANT_TITLE: variant.variant_title,
        VariantField.TITLE: variant.title,
        VariantField.HANDLE: variant.handle,
        VariantField.VENDOR: variant.vendor,
        VariantField.PRODUCT_TYPE: variant.product_type,
    }[field]


def is_on_sale(variant: Variant) -> bool:
    return (
        variant.amount is not None
        and variant.compare_at is not None
        and variant.compare_at > variant.amount
    )


class FailureKind(StrEnum):
    RATE_LIMIT = "rate_limit"
    NETWORK = "network"
    SERVER = "server"
    VALIDATION = "validation"
    AUTHENTICATION = "authentication"
    AUTHORIZATION = "authorization"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    SHOP_CLOSED = "shop_closed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


RETRYABLE = frozenset({FailureKind.RATE_LIMIT, FailureKind.NETWORK, FailureKind.SERVER})
# The shop would refuse every other target for the same reason, so the worker makes no more calls.
CRITICAL = frozenset({FailureKind.AUTHENTICATION, FailureKind.SHOP_CLOSED})

PRICE_DRIFT = "CONFLICT_PRICE_DRIFT"

_STATUSES: Mapping[int, FailureKind] = {
    401: FailureKind.AUTHENTICATION,
    402: FailureKind.SHOP_CLOSED,
    403: FailureKind.AUTHORIZATION,
    404: FailureKind.NOT_FOUND,
    408: FailureKind.NETWORK,
    409: FailureKind.CONFLICT,
    410: FailureKind.NOT_FOUND,
    423: FailureKind.SHOP_CLOSED,
    429: FailureKind.RATE_LIMIT,
}
_STATUS_CLASSES = {4: FailureKind.VALIDATION, 5: FailureKind.SERVER}
_CODES: Mapping[str, FailureKind] = {
    "429": FailureKind.RATE_LIMIT,
    "THROTTLED": FailureKind.RATE_LIMIT,
    "ECONNRESET": FailureKind.NETWORK,
    "ETIMEDOUT": FailureKind.NETWORK,
    "ENOTFOUND": FailureKind.NETWORK,
    "ECONNREFUSED": FailureKind.NETWORK,
    "INTERNAL_SERVER_ERROR": FailureKind.SERVER,
    "ACCESS_DENIED": FailureKind.AUTHORIZATION,
    "SHOP_INACTIVE": FailureKind.SHOP_CLOSED,
    "MAX_COST_EXCEEDED": FailureKind.VALIDATION,
    PRICE_DRIFT: FailureKind.CONFLICT,
}


@dataclass(frozen=True, kw_only=True)
class FailureSignal:
    """The evidence of a failure. `retryable` overrides the classification. `user_error`: the error
    concerns one variant in a valid answer. `lost`: the call was sent, and no answer arrived."""

    status: int | None = None
    code: str | None = None
    retryable: bool | None = None
    user_error: bool = False
    lost: bool = False


@dataclass(frozen=True)
class CallFailure:
    """`outcome_unknown`: the price may have been written, so the worker reads it before another
    attempt."""

    kind: FailureKind
    message: str
    retryable: bool
    outcome_unknown: bool = False
    retry_after_seconds: float | None = None

    @property
    def is_critical(self) -> bool:
        return self.kind in CRITICAL and not self.retryable


CANCELLED = CallFailure(
    FailureKind.CANCELLED, "The run was cancelled before the attempt.", retryable=False
)


def classify_failure(
    signal: FailureSignal, message: str, retry_after_seconds: float | None = None
) -> CallFailure:
    kind = _kind(signal)
    return CallFailure(
        kind=kind,
        message=message,
        retryable=(kind in RETRYABLE) if signal.retryable is None else signal.retryable,
        outcome_unknown=signal.lost or kind is FailureKind.SERVER or signal.status == 408,
        retry_after_seconds=retry_after_seconds,
    )


def _kind(signal: FailureSignal) -> FailureKind:
    code = (signal.code or "").upper()
    if signal.user_error:
        is_gone = code.endswith(("DOES_NOT_EXIST", "NOT_FOUND"))
        return FailureKind.NOT_FOUND if is_gone else FailureKind.VALIDATION
    if code in _CODES:
        return _CODES[code]
    if signal.status is None:
        return FailureKind.NETWORK if signal.lost else FailureKind.UNKNOWN
    if signal.status in _STATUSES:
        return _STATUSES[signal.status]
    return _STATUS_CLASSES.get(signal.status // 100, FailureKind.UNKNOWN)


Value = TypeVar("Value")


class ShopUnavailableError(TransientError):
    """The shop must not be called now, and the caller does not wait that long."""


class CallWithdrawnError(PermanentError):
    """The call was no longer needed when the rate limit allowed it."""


@dataclass(frozen=True)
class BucketStatus:
    """Points of the rate limit: every call costs points, and the shop restores them at a constant
    rate."""

    available: float
    maximum: float
    restore_rate: float


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitShown(JsonModel):
    """`until` is the end of an open circuit's pause. The counts are those of reads or of writes,
    whichever are higher."""

    state: CircuitState = CircuitState.CLOSED
    throttles: int = 0
    failures: int = 0
    until: Instant | None = None


class BucketShown(JsonModel):
    available: float
    maximum: float
    restore_rate: float


class ShopShown(JsonModel):
    """`refusals` are the times of the last rate-limit refusals. A shop that was never called has
    no bucket."""

    shop: str = Field(examples=["example.myshopify.com"])
    circuit: CircuitShown = CircuitShown()
    bucket: BucketShown | None = None
    paused_at: Instant | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    refusals: tuple[Instant, ...] = ()


@dataclass(frozen=True)
class CallResult(Generic[Value]):
    """Has either a `value` or a `failure`. `bucket` is the status that the answer reports, if any."""

    value: Value | None = None
    failure: CallFailure | None = None
    bucket: BucketStatus | None = None
    request_id: str | None = None

    @property
    def is_throttled(self) -> bool:
        return self.failure is not None and self.failure.kind is FailureKind.RATE_LIMIT


@dataclass(frozen=True)
class CataloguePage:
    """`after` is the cursor of the next page; None after the last page."""

    variants: Sequence[Variant]
    after: str | None


@dataclass(frozen=True)
class PriceWrite:
    """Without `writes_compare_at` the compare-at price stays; with it, None clears it."""

    variant_id: str
    price: Price
    writes_compare_at: bool


# By variant, the price that the shop confirms, or why it refuses it.
Written = Mapping[str, Price | CallFailure]
# By variant; unknown variants are missing.
Prices = Mapping[str, Price]


@dataclass(frozen=True)
class CallCosts:
    """Points for a page of the catalogue, for each price that is read, and for a write to a product.
    A call that reads prices costs `prices` in addition."""

    page: float
    each_price: float
    write: float
    prices: float = 0.0

    def reading(self, variants: int) -> float:
        return self.prices + variants * self.each_price


@dataclass(frozen=True, kw_only=True)
class ShopOptions:
    """A worker waits at most `longest_pause_seconds` for the next due target; otherwise it releases
    the run, and another worker continues later. `lease_seconds` exceeds the duration of any call, so
    that no call of the previous worker is in flight when another one takes over the run."""

    calls_at_once: int = 5
    call_seconds: float = 30.0
    lease_seconds: float = 120.0
    longest_pause_seconds: float = 90.0
    reconciles: bool = True
    # Daily budgets reset at midnight in this zone.
    time_zone: str = "Europe/Paris"


# The limits of one call.
MAX_PRICES_PER_READ = 250
MAX_PRICES_PER_WRITE = 250


class Shop(Protocol):
    """The prices of one shop. Every method makes exactly one call; the caller retries, waits and
    limits the rate. A failure is a value, from `classify_failure`, that says whether the call
    may have had its effect. Messages contain neither the token nor more of the address than its
    host."""

    @property
    def costs(self) -> CallCosts: ...

    async def page(self, after: str | None) -> CallResult[CataloguePage]:
        """Return a page of the whole catalogue, in a stable order. It includes inactive products."""
        ...

    async def prices(self, variant_ids: Sequence[str]) -> CallResult[Prices]:
        """Return the prices of at most MAX_PRICES_PER_READ variants. Variants without a price are
        missing."""
        ...

    async def write(self, product_id: str, writes: Sequence[PriceWrite]) -> CallResult[Written]:
        """Set prices of at most MAX_PRICES_PER_WRITE variants of one product. The shop may refuse
        some of them and set the others."""
        ...

    async def check(self) -> None:
        """Raise a TransientError or a PermanentError unless the shop answers and accepts the token."""
        ...


@dataclass(frozen=True)
class Storefront:
    """A configured shop. `name` is its host and the key of its stored data. `open` creates a client
    for the current event loop and closes it afterwards."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[Shop]]
    options: ShopOptions
    meter: Meter


@dataclass(frozen=True)
class PricingContext:
    storefront: Storefront
    database: "Database"
    clock: Clock


@dataclass(frozen=True)
class ApplyContext(PricingContext):
    shop: Shop
    random: Random = field(default_factory=Random)

    @classmethod
    def of(cls, context: PricingContext, shop: Shop) -> "ApplyContext":
        return cls(context.storefront, context.database, context.clock, shop)
