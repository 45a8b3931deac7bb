"""Calls of one shop by many processes, which can import this module."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime

import httpx

from automation_pipeline.clients.shop import ShopifyShop
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.core.metrics import Meter
from automation_pipeline.pricing.models.shop import (
    Price,
    PriceWrite,
    PricingContext,
    Shop,
    ShopOptions,
    Storefront,
    Variant,
)
from automation_pipeline.pricing.queries.runs import claim_run
from automation_pipeline.pricing.queries.targets import claim_chunk
from automation_pipeline.pricing.shop import call_shop, reserve_call
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import database_time
from automation_pipeline_tests.simulator_control import NO_CERTIFICATES, SHOP_TOKEN

NAME = "shop.test"


def over_http(url: str) -> Storefront:
    """The simulator's shop."""

    def open_client() -> aclosing[ShopifyShop]:
        transport = httpx.AsyncHTTPTransport(verify=NO_CERTIFICATES)
        now = datetime(2026, 5, 4, tzinfo=UTC)
        return aclosing(
            ShopifyShop(url, SHOP_TOKEN, version="2026-10", now=lambda: now, transport=transport)
        )

    return Storefront(NAME, open_client, ShopOptions(), Meter())


def context_for(url: str, database: Database) -> PricingContext:
    return PricingContext(over_http(url), database, SystemClock())


def catalogue(url: str) -> list[Variant]:
    async def first_page() -> list[Variant]:
        async with over_http(url).open() as shop:
            called = await shop.page(None)
            assert called.value is not None, called.failure
            return list(called.value.variants)

    return asyncio.run(first_page())


def read_prices_repeatedly(
    database_url: str, shop_url: str, variant_ids: Sequence[str], times: int
) -> int:
    """Read prices one call after the other; return the number of successes."""

    async def read() -> int:
        context, successes = context_for(shop_url, database), 0
        async with context.storefront.open() as shop:
            for _ in range(times):
                cost = shop.costs.reading(len(variant_ids))
                called = await call_shop(lambda: shop.prices(variant_ids), cost, context)
                successes += called.failure is None
        return successes

    database = Database(database_url)
    try:
        return asyncio.run(read())
    finally:
        database.dispose()


def write_many(
    database_url: str, shop_url: str, writes: Sequence[tuple[str, str]], at_once: int
) -> int:
    """Set a price for each (product, variant); return the number of successes."""

    async def write_some(shop: Shop, left: list[tuple[str, str]]) -> int:
        successes = 0
        while left:
            product_id, variant_id = left.pop()
            wanted = [PriceWrite(variant_id, Price(1234, "EUR", None), writes_compare_at=False)]
            called = await call_shop(
                lambda product_id=product_id, wanted=wanted: shop.write(product_id, wanted),
                shop.costs.write,
                context,
            )
            successes += called.failure is None
        return successes

    async def write_all() -> int:
        left = list(writes)
        async with context.storefront.open() as shop:
            return sum(await asyncio.gather(*(write_some(shop, left) for _ in range(at_once))))

    database = Database(database_url)
    context = context_for(shop_url, database)
    try:
        return asyncio.run(write_all())
    finally:
        database.dispose()


def may_call_now(database_url: str) -> bool:
    """Whether this process may call the shop at once."""
    database = Database(database_url)
    try:
        with database.transaction() as session:
            return reserve_call(session, NAME, 1.0, is_reserved=False).seconds <= 0
    finally:
        database.dispose()


def try_claim(database_url: str, run_id: int, owner: str) -> int:
    """The token of this process's claim on the run; 0 without one."""
    database = Database(database_url)
    try:
        with database.transaction() as session:
            run_claim = claim_run(session, run_id, owner, 60.0)
            return run_claim.token if run_claim else 0
    finally:
        database.dispose()


def claim_targets(database_url: str, run_id: int) -> int:
    """The number of targets that this process claims."""
    database = Database(database_url)
    try:
        with database.transaction() as session:
            return len(claim_chunk(session, run_id, "worker", database_time(session)))
    finally:
        database.dispose()
