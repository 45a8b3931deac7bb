"""The asset `pricing_runs`: how the runs of rules that ended on a day went."""

from collections.abc import Iterator

import dagster as dg

from automation_pipeline.orchestration.days import DAYS, check_result, check_specs, day_of, span_of
from automation_pipeline.orchestration.failures import CRASH_RETRIES, verdicts
from automation_pipeline.orchestration.resource import ServicesResource
from automation_pipeline.pricing.rules.monitoring import DAY_CHECKS


@dg.asset(partitions_def=DAYS, group_name="pricing", retry_policy=CRASH_RETRIES)
def pricing_runs(
    context: dg.AssetExecutionContext, services: ServicesResource
) -> dg.MaterializeResult:
    """Runs that ended on the day: how many prices were applied and how many were not."""
    from automation_pipeline.orchestration.pricing import day_page
    from automation_pipeline.pricing.queries.health import runs_that_ended

    span = span_of(day_of(context))
    with verdicts(), services.get().database.reading() as session:
        return dg.MaterializeResult(metadata=day_page(runs_that_ended(session, *span)))


@dg.multi_asset_check(specs=check_specs(pricing_runs, DAY_CHECKS))
def pricing_runs_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> Iterator[dg.AssetCheckResult]:
    """Nearly every price applied, few failures left to themselves, the shop's prices as applied,
    invariants kept."""
    from automation_pipeline.pricing.queries.health import runs_that_ended
    from automation_pipeline.pricing.rules.monitoring import evaluate_day

    span = span_of(day_of(context))
    with services.get().database.reading() as session:
        day = runs_that_ended(session, *span)
    for finding in evaluate_day(day):
        yield check_result("pricing_runs", finding)
