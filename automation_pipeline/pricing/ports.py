"""The shop, as pricing needs it: a protocol, and what a worker of a run holds."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

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

# What a shop takes in one call.
MAX_PRICES_PER_READ = 250
MAX_PRICES_PER_WRITE = 250


class Shop(Protocol):
    """One shop's prices. Every method makes exactly one call and repeats nothing: attempts, waits
    and pace are the caller's. Whatever the shop does is a value: a failure is classified by
    `models.shop`, and says whether the call may have had its effect. No text holds the token or
    any part of the address but its host."""

    @property
    def costs(self) -> CallCosts: ...

    async def page(self, after: str | None) -> CallResult[CataloguePage]:
        """A page of the whole catalogue, inactive products included, in a steady order."""
        ...

    async def prices(self, variant_ids: Sequence[str]) -> CallResult[Prices]:
        """What at most MAX_PRICES_PER_READ variants cost now. A variant without a price is not there
        either."""
        ...

    async def write(self, product_id: str, writes: Sequence[PriceWrite]) -> CallResult[Written]:
        """Set prices of at most MAX_PRICES_PER_WRITE variants of one product. Of those, some may be refused
        and others set."""
        ...

    async def check(self) -> None:
        """Nothing, when the shop answers and accepts our token; else an error that says what is
        wrong."""
        ...


@dataclass(frozen=True)
class Storefront:
    """The shop as stages meet it. `name` is its host: all that is remembered of it is kept under
    that. `open` makes a client for the loop that it is opened in, and closes it."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[Shop]]
    options: ShopOptions
    meter: Meter


@dataclass(frozen=True)
class ApplyContext:
    """A worker's place: the shop as it is open to it, and where everything is remembered."""

    shop: Shop
    front: Storefront
    database: Database
    random: Random = field(default_factory=Random)
