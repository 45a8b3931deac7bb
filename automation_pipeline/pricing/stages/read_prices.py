"""Read what variants cost in the shop, however many, with another try where that can help."""

import asyncio
from collections.abc import Iterator, Sequence

from automation_pipeline.core.tasks import together
from automation_pipeline.pricing.domain.failures import Failure
from automation_pipeline.pricing.domain.money import Price
from automation_pipeline.pricing.domain.retrying import GiveUp, Progress, after_failure
from automation_pipeline.pricing.ports import MOST_PRICES, Desk
from automation_pipeline.pricing.stages.call_shop import call_shop

_NOT_THERE = "the variant, or its price, is not in the shop any more"


async def read_prices(variant_ids: Sequence[str], *, desk: Desk) -> dict[str, Price | str]:
    """By variant; where it could not be read, why not. ShopRestingError: the shop is to be left alone for longer than
    a worker stays, and nothing is known."""
    reading = _Reading(desk)
    distinct = list(dict.fromkeys(variant_ids))
    lots = iter([distinct[at : at + MOST_PRICES] for at in range(0, len(distinct), MOST_PRICES)])
    async with together() as group:
        for _ in range(desk.front.knobs.calls_at_once):
            group.create_task(reading.go_through(lots))
    return reading.found


class _Reading:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._refused: Failure | None = None
        self.found: dict[str, Price | str] = {}

    async def go_through(self, lots: Iterator[Sequence[str]]) -> None:
        for lot in lots:
            failure = self._refused or await self._read(lot)
            if failure is not None:
                self.found |= dict.fromkeys(lot, failure.message)
                self._refused = failure if failure.is_critical else self._refused

    async def _read(self, lot: Sequence[str]) -> Failure | None:
        """Why it failed in the end."""
        desk, progress, waited = self._desk, Progress(), 0.0
        while True:
            called = await call_shop(
                lambda: desk.shop.prices(lot),
                desk.shop.costs.reading(len(lot)),
                front=desk.front,
                database=desk.database,
            )
            if called.failure is None:
                prices = called.value or {}
                self.found |= {variant_id: prices.get(variant_id, _NOT_THERE) for variant_id in lot}
                return None
            next_try = after_failure(called.failure, progress, desk.random)
            if isinstance(next_try, GiveUp) or waited + next_try.wait_seconds > desk.front.knobs.longest_pause_seconds:
                return called.failure
            waited, progress = waited + next_try.wait_seconds, next_try.progress
            await asyncio.sleep(next_try.wait_seconds)
