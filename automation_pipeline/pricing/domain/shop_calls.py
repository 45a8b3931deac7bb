"""What calls of a shop bring: a value or a failure, and how full its bucket of points is afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.pricing.domain.failures import Failure, FailureKind
from automation_pipeline.pricing.domain.money import Price
from automation_pipeline.pricing.domain.variant import Variant

Value = TypeVar("Value")


class ShopRestingError(TransientError):
    """The shop must be left alone for longer than the caller waits."""


class CallNotWantedError(PermanentError):
    """While the call waited for its turn, its reason went away."""


@dataclass(frozen=True)
class Bucket:
    """Points: every call takes some, and they come back at a steady rate."""

    available: float
    maximum: float
    restore_rate: float


@dataclass(frozen=True)
class Called(Generic[Value]):
    """Exactly one of `value` and `failure` is there. `bucket` is as the shop told it, if it did."""

    value: Value | None = None
    failure: Failure | None = None
    bucket: Bucket | None = None
    request_id: str | None = None

    @property
    def is_throttled(self) -> bool:
        return self.failure is not None and self.failure.kind is FailureKind.RATE_LIMIT


@dataclass(frozen=True)
class Page:
    """Variants of the shop's catalogue, and where the next page begins; None after the last."""

    variants: Sequence[Variant]
    after: str | None


@dataclass(frozen=True)
class PriceWrite:
    """The compare-at price is left as it is unless it `writes_compare_at`; then None clears it."""

    variant_id: str
    price: Price
    writes_compare_at: bool


# By variant: the price as the shop confirms it, or why it refuses this one.
Written = Mapping[str, Price | Failure]
# By variant; those that the shop does not know are not there.
Prices = Mapping[str, Price]


@dataclass(frozen=True)
class Costs:
    """Points that calls ask for: a page of the catalogue, the price of one variant, a write to one product. `prices`
    is asked for on top, once for each call that reads prices."""

    page: float
    each_price: float
    write: float
    prices: float = 0.0

    def reading(self, variants: int) -> float:
        return self.prices + variants * self.each_price
