"""The daily look at every price that runs have applied within thirty days, each variant once."""

import asyncio
from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo

from automation_pipeline.core.clock import Clock
from automation_pipeline.pricing.domain.reconciliation import ReconciliationReport
from automation_pipeline.pricing.ports import Desk, Storefront
from automation_pipeline.pricing.stages.read_prices import read_prices
from automation_pipeline.pricing.store.findings import Seen, keep_findings
from automation_pipeline.pricing.store.standing import StandingTarget, runs_to_look_at, standing_targets
from automation_pipeline.storage.database import Database

_ByRun = Mapping[int, Sequence[StandingTarget]]


async def reconcile_all(*, front: Storefront, database: Database, clock: Clock) -> list[ReconciliationReport]:
    """One report a run and a day, an empty one for a run that has no price of its own in the shop any more. Repeated
    on the same day it does what is missing. ShopRestingError: nothing could be read now, and nothing is kept. Nothing,
    where it is switched off."""
    if not front.knobs.reconciles:
        return []
    daily = _Daily(front, database, clock)
    targets = await asyncio.to_thread(daily.expected)
    variants = [one.variant_id for ones in targets.values() for one in ones]
    seen: Seen = {}
    if variants:
        async with front.open() as shop:
            seen = await read_prices(variants, desk=Desk(shop, front, database))
    return await asyncio.to_thread(daily.keep, targets, seen)


class _Daily:
    def __init__(self, front: Storefront, database: Database, clock: Clock) -> None:
        self._front, self._database, self._clock = front, database, clock
        self._day = clock.now().astimezone(ZoneInfo(front.knobs.time_zone)).date().isoformat()

    def expected(self) -> _ByRun:
        with self._database.reading() as session:
            runs = runs_to_look_at(session, self._front.name, self._day, self._clock.now())
            by_run: dict[int, list[StandingTarget]] = {run_id: [] for run_id in runs}
            for target in standing_targets(session, runs):
                by_run[target.run_id].append(target)
            return by_run

    def keep(self, targets: _ByRun, seen: Seen) -> list[ReconciliationReport]:
        with self._database.transaction() as session:
            return keep_findings(session, self._day, targets, seen, self._front.name, self._clock.now())
