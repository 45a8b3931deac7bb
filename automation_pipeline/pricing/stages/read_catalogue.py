"""Read the shop's whole catalogue, page by page, each at its turn."""

import asyncio
from collections.abc import AsyncGenerator
from random import Random

from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.pricing.domain.failures import Failure
from automation_pipeline.pricing.domain.retrying import MAX_RETRIES, Progress, TryAgain, after_failure
from automation_pipeline.pricing.domain.shop_calls import Page
from automation_pipeline.pricing.ports import Shop, Storefront
from automation_pipeline.pricing.stages.call_shop import call_shop
from automation_pipeline.storage.database import Database


async def read_catalogue(*, front: Storefront, database: Database) -> AsyncGenerator[Page]:
    """In the shop's order. A page that fails is asked for again, four times at most and as long as a worker stays;
    then TransientError or PermanentError, in the shop's words."""
    async with front.open() as shop:
        page = await _page(shop, None, front, database)
        yield page
        been: set[str] = set()
        while page.after is not None:
            been.add(page.after)
            page = await _page(shop, page.after, front, database)
            if page.after in been:
                raise PermanentError(f"{front.name} tells of the same page of its catalogue again and again.")
            yield page


async def _page(shop: Shop, after: str | None, front: Storefront, database: Database) -> Page:
    progress, random = Progress(), Random()
    for calls_left in reversed(range(MAX_RETRIES + 1)):
        called = await call_shop(lambda: shop.page(after), shop.costs.page, front=front, database=database)
        if called.value is not None:
            return called.value
        if called.failure is None:
            break
        decided = after_failure(called.failure, progress, random)
        longest = front.knobs.longest_pause_seconds
        if not isinstance(decided, TryAgain) or not calls_left or decided.wait_seconds > longest:
            raise _error(called.failure)
        progress = decided.progress
        await asyncio.sleep(decided.wait_seconds)
    raise PermanentError(f"{front.name} answered nothing.")


def _error(failure: Failure) -> TransientError | PermanentError:
    if failure.retryable:
        return TransientError(failure.message, retry_after_seconds=failure.retry_after_seconds)
    return PermanentError(failure.message)
