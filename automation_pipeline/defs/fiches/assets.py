"""Assets `sales_list` and `fiche_details`: the CRM mirrored, day by day."""

import dagster as dg

from automation_pipeline.orchestration.days import (
    DAYS,
    coverage_metadata,
    day_of,
    sales_day_metadata,
)
from automation_pipeline.orchestration.failures import CRASH_RETRIES, verdicts
from automation_pipeline.orchestration.resource import ServicesResource


@dg.asset(partitions_def=DAYS, group_name="crm", kinds={"http"}, retry_policy=CRASH_RETRIES)
def sales_list(
    context: dg.AssetExecutionContext, services: ServicesResource
) -> dg.MaterializeResult:
    """The fiches sold on the day, in short, as the CRM lists them now: one call."""
    from automation_pipeline.fiches.days import revalidate_day

    our = services.get()
    with verdicts():
        asking = revalidate_day(
            day_of(context),
            database=our.database,
            source=our.crm,
            clock=our.clock,
            semaphore=our.sales_list_semaphore,
        )
        return dg.MaterializeResult(metadata=sales_day_metadata(our.run(asking)))


@dg.asset(
    partitions_def=DAYS,
    group_name="crm",
    kinds={"http"},
    deps=[sales_list],
    retry_policy=CRASH_RETRIES,
)
def fiche_details(
    context: dg.AssetExecutionContext, services: ServicesResource
) -> dg.MaterializeResult:
    """The full details of the day's fiches; only those that are missing or too old are asked
    for."""
    from automation_pipeline.fiches.details import fetch_days
    from automation_pipeline.fiches.queries.details import coverage_of

    our, day = services.get(), day_of(context)
    with verdicts():
        errors = our.run(fetch_days([day], database=our.database, source=our.crm, clock=our.clock))
        with our.database.reading() as session:
            coverage = coverage_of(session, day)
    return dg.MaterializeResult(metadata=coverage_metadata(coverage, errors))
