"""Checks against the shop: request, reconcile one run or all, repair."""

import asyncio
from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.models.history import (
    Mismatch,
    ReconciliationReport,
    validate_check_name,
)
from automation_pipeline.pricing.models.runs import PricingRunState, RuleRun
from automation_pipeline.pricing.ports import ApplyContext, Storefront
from automation_pipeline.pricing.queries.checks import (
    LiveTarget,
    PricesByVariant,
    add_repair,
    done_report,
    file_due_checks,
    latest_conclusive_check,
    live_targets,
    runs_to_check,
    save_findings,
    still_to_repair,
)
from automation_pipeline.pricing.queries.runs import get_run, locked_run
from automation_pipeline.pricing.rules.monitoring import repairable_mismatches
from automation_pipeline.pricing.shop_calls import read_prices
from automation_pipeline.storage.database import Database, Session


def request_due_checks(*, database: Database, clock: Clock) -> Sequence[str]:
    """Keys of the requests. Safe beside another copy of itself."""
    with database.transaction() as session:
        return file_due_checks(session, clock.now())


async def reconcile_run(
    run_id: int, *, front: Storefront, database: Database, clock: Clock, name: str
) -> ReconciliationReport:
    """A check that was made already is not made again. ShopRestingError: nothing could be read now;
    what is due stays due. ConflictError: nothing of the run was applied yet."""
    check = _RunCheck(run_id, name, front, database, clock)
    done = await asyncio.to_thread(check.done)
    if done is not None:
        return done
    shop, targets = await asyncio.to_thread(check.expected)
    if shop == front.name:
        seen: PricesByVariant = await check.read(targets)
    else:
        seen = {one.variant_id: f"it was applied in another shop, {shop}" for one in targets}
    return await asyncio.to_thread(check.keep, shop, targets, seen)


class _RunCheck:
    def __init__(
        self, run_id: int, name: str, front: Storefront, database: Database, clock: Clock
    ) -> None:
        validate_check_name(name)
        self._run_id, self._name, self._front, self._database, self._clock = (
            run_id,
            name,
            front,
            database,
            clock,
        )

    def done(self) -> ReconciliationReport | None:
        with self._database.reading() as session:
            return done_report(session, self._run_id, self._name)

    def expected(self) -> tuple[str, Sequence[LiveTarget]]:
        with self._database.reading() as session:
            run = get_run(session, self._run_id)
            if run.status in {PricingRunState.PREVIEW, PricingRunState.QUEUED}:
                raise ConflictError(
                    f"Run {run.id} is {run.status}: nothing of it is applied that could be checked."
                )
            return run.shop, live_targets(session, [run.id])

    async def read(self, targets: Sequence[LiveTarget]) -> PricesByVariant:
        if not targets:
            return {}
        async with self._front.open() as shop:
            context = ApplyContext(shop, self._front, self._database)
            return await read_prices([one.variant_id for one in targets], context=context)

    def keep(
        self, shop: str, targets: Sequence[LiveTarget], seen: PricesByVariant
    ) -> ReconciliationReport:
        looked_at = {self._run_id: targets}
        with self._database.transaction() as session:
            (found,) = save_findings(session, self._name, looked_at, seen, shop, self._clock.now())
        return found


_ByRun = Mapping[int, Sequence[LiveTarget]]


async def reconcile_all(
    *, front: Storefront, database: Database, clock: Clock
) -> list[ReconciliationReport]:
    """One report a run and a day, an empty one for a run that has no price of its own in the shop
    any more. Repeated on the same day it does what is missing. ShopRestingError: nothing could be
    read now, and nothing is kept. Nothing, where it is switched off."""
    if not front.options.reconciles:
        return []
    daily = _DailyCheck(front, database, clock)
    targets = await asyncio.to_thread(daily.expected)
    variants = [one.variant_id for ones in targets.values() for one in ones]
    seen: PricesByVariant = {}
    if variants:
        async with front.open() as shop:
            seen = await read_prices(variants, context=ApplyContext(shop, front, database))
    return await asyncio.to_thread(daily.keep, targets, seen)


class _DailyCheck:
    def __init__(self, front: Storefront, database: Database, clock: Clock) -> None:
        self._front, self._database, self._clock = front, database, clock
        self._day = clock.now().astimezone(ZoneInfo(front.options.time_zone)).date().isoformat()

    def expected(self) -> _ByRun:
        with self._database.reading() as session:
            runs = runs_to_check(session, self._front.name, self._day, self._clock.now())
            by_run: dict[int, list[LiveTarget]] = {run_id: [] for run_id in runs}
            for target in live_targets(session, runs):
                by_run[target.run_id].append(target)
            return by_run

    def keep(self, targets: _ByRun, seen: PricesByVariant) -> list[ReconciliationReport]:
        with self._database.transaction() as session:
            return save_findings(
                session, self._day, targets, seen, self._front.name, self._clock.now()
            )


def repair_run(run_id: int, *, database: Database, clock: Clock, actor: str) -> RuleRun:
    """A preview of its own, which is approved and queued as any other. ConflictError: there is
    nothing to put back."""
    with database.transaction() as session:
        run = locked_run(session, run_id)
        if run.promotion_ended_at is not None:
            raise ConflictError(
                f"The promotion of run {run_id} is over: its prices are not put back any more."
            )
        check, mismatches = _latest_mismatches(session, run_id)
        wrong = still_to_repair(session, run, mismatches)
        if not wrong:
            raise ConflictError(
                f"Nothing of run {run_id} is to be repaired: its last check, {check}, has found no price "
                "that is wrong still and can be put back."
            )
        return get_run(session, add_repair(session, run, check, wrong, actor, clock.now()))


def _latest_mismatches(session: Session, run_id: int) -> tuple[str, dict[int, Mismatch]]:
    newest = latest_conclusive_check(session, run_id)
    if newest is None or newest.report is None:
        raise ConflictError(
            f"No price of run {run_id} was looked up in the shop yet: reconcile it first."
        )
    return newest.name, {int(one.target_id): one for one in repairable_mismatches(newest.report)}
