"""Look whether the shop still has the prices that a run has applied, and tell every difference."""

import asyncio
from collections.abc import Sequence

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.domain.reconciliation import ReconciliationReport
from automation_pipeline.pricing.domain.rule_check import refuse_strange_name
from automation_pipeline.pricing.domain.states import RunState
from automation_pipeline.pricing.ports import Desk, Storefront
from automation_pipeline.pricing.stages.read_prices import read_prices
from automation_pipeline.pricing.store.checks import done_report
from automation_pipeline.pricing.store.findings import Seen, keep_findings
from automation_pipeline.pricing.store.run_views import get_run
from automation_pipeline.pricing.store.standing import StandingTarget, standing_targets
from automation_pipeline.storage.database import Database


async def reconcile_run(
    run_id: int, *, front: Storefront, database: Database, clock: Clock, name: str
) -> ReconciliationReport:
    """A check that was made already is not made again. ShopRestingError: nothing could be read now; what is due stays
    due. ConflictError: nothing of the run was applied yet."""
    check = _Check(run_id, name, front, database, clock)
    done = await asyncio.to_thread(check.done)
    if done is not None:
        return done
    shop, targets = await asyncio.to_thread(check.expected)
    if shop == front.name:
        seen: Seen = await check.read(targets)
    else:
        seen = {one.variant_id: f"it was applied in another shop, {shop}" for one in targets}
    return await asyncio.to_thread(check.keep, shop, targets, seen)


class _Check:
    def __init__(self, run_id: int, name: str, front: Storefront, database: Database, clock: Clock) -> None:
        refuse_strange_name(name)
        self._run_id, self._name, self._front, self._database, self._clock = run_id, name, front, database, clock

    def done(self) -> ReconciliationReport | None:
        with self._database.reading() as session:
            return done_report(session, self._run_id, self._name)

    def expected(self) -> tuple[str, Sequence[StandingTarget]]:
        with self._database.reading() as session:
            run = get_run(session, self._run_id)
            if run.status in {RunState.PREVIEW, RunState.QUEUED}:
                raise ConflictError(f"Run {run.id} is {run.status}: nothing of it is applied that could be checked.")
            return run.shop, standing_targets(session, [run.id])

    async def read(self, targets: Sequence[StandingTarget]) -> Seen:
        if not targets:
            return {}
        async with self._front.open() as shop:
            desk = Desk(shop, self._front, self._database)
            return await read_prices([one.variant_id for one in targets], desk=desk)

    def keep(self, shop: str, targets: Sequence[StandingTarget], seen: Seen) -> ReconciliationReport:
        looked_at = {self._run_id: targets}
        with self._database.transaction() as session:
            (found,) = keep_findings(session, self._name, looked_at, seen, shop, self._clock.now())
        return found
