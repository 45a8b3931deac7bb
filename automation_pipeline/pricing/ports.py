"""The protocol of a shop, and the dependencies of work on a shop."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.metrics import Meter
from automation_pipeline.pricing.models.shop import (
    CallCosts,
    CallResult,
    CataloguePage,
    Prices,
    PriceWrite,
    ShopOptions,
    Written,
)
from automation_pipeline.storage.database import Database

# The limits of one call.
MAX_PRICES_PER_READ = 250
MAX_PRICES_PER_WRITE = 250


class Shop(Protocol):
    """The prices of one shop. Every method makes exactly one call; the caller retries, waits and
    limits the rate. A failure is a value, classified by `models.shop`, that says whether the call
    may have had its effect. Texts never contain the token, and contain only the host of the
    address."""

    @property
    def costs(self) -> CallCosts: ...

    async def page(self, after: str | None) -> CallResult[CataloguePage]:
        """A page of the whole catalogue, inactive products included, in a stable order."""
        ...

    async def prices(self, variant_ids: Sequence[str]) -> CallResult[Prices]:
        """The prices of at most MAX_PRICES_PER_READ variants; variants without a price are missing."""
        ...

    async def write(self, product_id: str, writes: Sequence[PriceWrite]) -> CallResult[Written]:
        """Set prices of at most MAX_PRICES_PER_WRITE variants of one product. Some may be refused
        and others set."""
        ...

    async def check(self) -> None:
        """Raises the reason unless the shop answers and accepts the token."""
        ...


@dataclass(frozen=True)
class Storefront:
    """A configured shop. `name` is its host, the key of its stored data. `open` creates a client
    for the current event loop, and closes it."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[Shop]]
    options: ShopOptions
    meter: Meter


@dataclass(frozen=True)
class PricingContext:
    storefront: Storefront
    database: Database
    clock: Clock


@dataclass(frozen=True)
class ApplyContext(PricingContext):
    shop: Shop
    random: Random = field(default_factory=Random)

    @classmethod
    def of(cls, context: PricingContext, shop: Shop) -> "ApplyContext":
        return cls(context.storefront, context.database, context.clock, shop)
