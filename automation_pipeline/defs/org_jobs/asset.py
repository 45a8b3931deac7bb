"""The asset `org_job_outcomes`: how a day of organisations' schedules and jobs went."""

from collections.abc import Iterator

import dagster as dg

from automation_pipeline.orchestration.days import DAYS, check_result, check_specs, day_of, span_of
from automation_pipeline.orchestration.failures import CRASH_RETRIES, verdicts
from automation_pipeline.orchestration.resource import ServicesResource
from automation_pipeline.org_jobs.rules.days import DAY_CHECKS


@dg.asset(partitions_def=DAYS, group_name="org_jobs", retry_policy=CRASH_RETRIES)
def org_job_outcomes(
    context: dg.AssetExecutionContext, services: ServicesResource
) -> dg.MaterializeResult:
    """Due times that were decided upon on the day, and jobs that ended on it, of all
    organisations."""
    from automation_pipeline.orchestration.org_jobs import day_page
    from automation_pipeline.org_jobs.queries.statistics import day_of_jobs

    our = services.get()
    with verdicts(), our.database.reading() as session:
        day = day_of_jobs(session, *span_of(day_of(context)), our.clock.now())
    return dg.MaterializeResult(metadata=day_page(day))


@dg.multi_asset_check(specs=check_specs(org_job_outcomes, DAY_CHECKS))
def org_job_outcomes_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> Iterator[dg.AssetCheckResult]:
    """No due time came to nothing, whatever is due is looked at, every schedule can be read."""
    from automation_pipeline.org_jobs.queries.statistics import day_of_jobs
    from automation_pipeline.org_jobs.rules.days import judge_day

    our = services.get()
    with our.database.reading() as session:
        day = day_of_jobs(session, *span_of(day_of(context)), our.clock.now())
    for finding in judge_day(day):
        yield check_result("org_job_outcomes", finding)
