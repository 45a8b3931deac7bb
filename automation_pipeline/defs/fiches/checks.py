"""Is a day as it should be? Checks run with their asset, or on their own to see what has become
stale."""

from collections.abc import Iterator

import dagster as dg

from automation_pipeline.defs.fiches.assets import fiche_details, sales_list
from automation_pipeline.fiches.rules import COVERAGE_CHECKS, DAY_CHECKS, STALE_CHECK
from automation_pipeline.orchestration.days import check_result, check_specs, day_of
from automation_pipeline.orchestration.resource import ServicesResource


@dg.multi_asset_check(specs=check_specs(sales_list, DAY_CHECKS))
def sales_list_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> Iterator[dg.AssetCheckResult]:
    """Not empty on a weekday, no id twice, a usual volume, every fiche with its cle."""
    from automation_pipeline.fiches.days import check_sales_day

    for finding in check_sales_day(day_of(context), database=services.get().database):
        yield check_result("sales_list", finding)


@dg.asset_check(asset=sales_list, name=STALE_CHECK)
def no_stale_day(services: ServicesResource) -> dg.AssetCheckResult:
    """Every day of the last month has a list that was taken after it was over, or not long ago."""
    from automation_pipeline.fiches.days import find_stale_days

    our = services.get()
    first = our.settings.automation_first_day
    return check_result(
        "sales_list", find_stale_days(first, database=our.database, clock=our.clock)
    )


@dg.multi_asset_check(specs=check_specs(fiche_details, COVERAGE_CHECKS))
def fiche_details_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> Iterator[dg.AssetCheckResult]:
    """Nearly every fiche of the day has its details, and few are unknown to the CRM."""
    from automation_pipeline.fiches.details import check_details_day

    for finding in check_details_day(day_of(context), database=services.get().database):
        yield check_result("fiche_details", finding)
