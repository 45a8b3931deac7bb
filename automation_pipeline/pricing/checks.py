"""Checks of applied prices against the shop: request, reconcile one run or all, repair."""

import asyncio
from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.models.history import (
    LiveTarget,
    ReconciliationReport,
    validate_check_name,
)
from automation_pipeline.pricing.models.runs import PricingRunState, RuleRun
from automation_pipeline.pricing.ports import ApplyContext, PricingContext
from automation_pipeline.pricing.queries.checks import (
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
from automation_pipeline.pricing.queries.runs import locked_run
from automation_pipeline.pricing.queries.views import get_run
from automation_pipeline.pricing.rules.monitoring import repairable_mismatches
from automation_pipeline.pricing.shop import read_prices
from automation_pipeline.storage.database import Database

_ByRun = Mapping[int, Sequence[LiveTarget]]


def request_due_checks(*, database: Database, clock: Clock) -> Sequence[str]:
    """The keys of the requests. Safe to run concurrently with itself."""
    with database.transaction() as session:
        return file_due_checks(session, clock.now())


async def reconcile_run(run_id: int, context: PricingContext, *, name: str) -> ReconciliationReport:
    """A completed check is not repeated. ShopRestingError: no price could be read, and the check
    stays due. ConflictError: no price of the run is applied."""
    validate_check_name(name)

    def read_run() -> tuple[ReconciliationReport | None, str, list[LiveTarget]]:
        with context.database.reading() as session:
            done = done_report(session, run_id, name)
            run = get_run(session, run_id)
            if done is None and run.status in {PricingRunState.PREVIEW, PricingRunState.QUEUED}:
                raise ConflictError(
                    f"Run {run.id} is {run.status}: it has no applied price to check."
                )
            return done, run.shop, [] if done else live_targets(session, [run_id])

    done, shop, targets = await asyncio.to_thread(read_run)
    if done is not None:
        return done
    checked = {run_id: targets}
    if shop == context.storefront.name:
        prices = await _read(checked, context)
    else:
        reason = f"it was applied in another shop, {shop}"
        prices = {one.variant_id: reason for one in targets}
    (report,) = await asyncio.to_thread(_save, name, checked, prices, shop, context)
    return report


async def reconcile_all(context: PricingContext) -> list[ReconciliationReport]:
    """One report per run and day; a repetition on the same day adds the missing reports.
    ShopRestingError: no price could be read, and nothing is stored. If reconciliation is disabled,
    this does nothing."""
    options, shop, now = context.storefront.options, context.storefront.name, context.clock.now()
    if not options.reconciles:
        return []
    day = now.astimezone(ZoneInfo(options.time_zone)).date().isoformat()

    def read_runs() -> _ByRun:
        with context.database.reading() as session:
            runs = runs_to_check(session, shop, day, now)
            by_run: dict[int, list[LiveTarget]] = {run_id: [] for run_id in runs}
            for target in live_targets(session, runs):
                by_run[target.run_id].append(target)
            return by_run

    checked = await asyncio.to_thread(read_runs)
    prices = await _read(checked, context)
    return await asyncio.to_thread(_save, day, checked, prices, shop, context)


async def _read(checked: _ByRun, context: PricingContext) -> PricesByVariant:
    variants = [one.variant_id for targets in checked.values() for one in targets]
    if not variants:
        return {}
    async with context.storefront.open() as shop:
        return await read_prices(variants, ApplyContext.of(context, shop))


def _save(
    name: str, checked: _ByRun, prices: PricesByVariant, shop: str, context: PricingContext
) -> list[ReconciliationReport]:
    with context.database.transaction() as session:
        return save_findings(session, name, checked, prices, shop, context.clock.now())


def repair_run(run_id: int, *, database: Database, clock: Clock, actor: str) -> RuleRun:
    """Create a preview that restores the applied prices. It is approved and queued like any other.
    ConflictError: there is nothing to restore."""
    with database.transaction() as session:
        run = locked_run(session, run_id)
        if run.promotion_ended_at is not None:
            raise ConflictError(
                f"The promotion of run {run_id} is over: its prices are no longer restored."
            )
        check = latest_conclusive_check(session, run_id)
        if check is None or check.report is None:
            raise ConflictError(
                f"No price of run {run_id} was read from the shop yet: reconcile the run first."
            )
        mismatches = {int(one.target_id): one for one in repairable_mismatches(check.report)}
        wrong = still_to_repair(session, run, mismatches)
        if not wrong:
            raise ConflictError(
                f"Run {run_id} needs no repair: its last check, {check.name}, found no wrong price that can "
                "be restored."
            )
        return get_run(session, add_repair(session, run, check.name, wrong, actor, clock.now()))
