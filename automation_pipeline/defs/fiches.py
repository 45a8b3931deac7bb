"""Sales lists and fiche details: assets, checks, the job over days, and schedules."""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from automation_pipeline.orchestration.days import (
    DAYS,
    SETTINGS,
    check_result,
    check_specs,
    coverage_metadata,
    day_of,
    sales_day_metadata,
    yesterday,
)
from automation_pipeline.orchestration.job_registry import take_request
from automation_pipeline.orchestration.ops import (
    CRASH_RETRIES,
    ServicesResource,
    StrictConfig,
    dagster_errors,
    error_message_of,
    every,
    job_tags,
)


@dg.asset(partitions_def=DAYS, group_name="crm", kinds={"http"}, retry_policy=CRASH_RETRIES)
def sales_list(
    context: dg.AssetExecutionContext, services: ServicesResource
) -> dg.MaterializeResult:
    """The fiches sold on the day, as the CRM lists them now: one request."""
    from automation_pipeline.fiches.mirror import revalidate_day

    system = services.get()
    with dagster_errors():
        revalidation = revalidate_day(
            day_of(context),
            database=system.database,
            source=system.crm,
            clock=system.clock,
            semaphore=system.sales_list_semaphore,
        )
        return dg.MaterializeResult(metadata=sales_day_metadata(system.run(revalidation)))


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
    """The full details of the day's fiches. Only missing and outdated details are requested."""
    from automation_pipeline.fiches.mirror import fetch_days
    from automation_pipeline.fiches.queries.mirror import coverage_of

    system, day = services.get(), day_of(context)
    with dagster_errors():
        errors = system.run(
            fetch_days([day], database=system.database, source=system.crm, clock=system.clock)
        )
        with system.database.reading() as session:
            coverage = coverage_of(session, day)
    return dg.MaterializeResult(metadata=coverage_metadata(coverage, errors))


@dg.multi_asset_check(specs=check_specs(sales_list))
def sales_list_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> Iterator[dg.AssetCheckResult]:
    """The list is not empty on a weekday, has no id twice and a usual volume, and every fiche has
    its cle."""
    from automation_pipeline.fiches.mirror import check_sales_day

    for finding in check_sales_day(day_of(context), database=services.get().database):
        yield check_result("sales_list", finding)


@dg.asset_check(asset=sales_list, name="no_stale_day")
def no_stale_day(services: ServicesResource) -> dg.AssetCheckResult:
    """Every day of the last month has a list that was fetched after the day ended, or recently."""
    from automation_pipeline.fiches.mirror import find_stale_days

    system = services.get()
    first = system.settings.automation_first_day
    return check_result(
        "sales_list", find_stale_days(first, database=system.database, clock=system.clock)
    )


@dg.multi_asset_check(specs=check_specs(fiche_details))
def fiche_details_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> Iterator[dg.AssetCheckResult]:
    """Nearly every fiche of the day has its details, and few are unknown to the CRM."""
    from automation_pipeline.fiches.mirror import check_details_day

    for finding in check_details_day(day_of(context), database=services.get().database):
        yield check_result("fiche_details", finding)


class RangeConfig(StrictConfig):
    """Which fetch job to work on; the HTTP API files them."""

    job_id: str = Field(description="The job: GET /api/fiches/jobs shows them.")
    refresh: bool = Field(
        default=False, description="Also fetch lists again that can no longer change."
    )


@dg.op
def fetch_days(
    context: dg.OpExecutionContext, config: RangeConfig, services: ServicesResource
) -> None:
    """Fetch the remaining days from the CRM. A retry continues where the attempt stopped. The op
    fails when no day could be read."""
    from automation_pipeline.fiches.fetch_jobs import fetch_range
    from automation_pipeline.fiches.models.fetch_jobs import JobStatus
    from automation_pipeline.orchestration.fiche_jobs import fetch_job_metadata

    system = services.get()
    with dagster_errors():
        take_request(context, system)
        common = {
            "database": system.database,
            "source": system.crm,
            "clock": system.clock,
            "semaphore": system.sales_list_semaphore,
        }
        every = system.settings.progressive_fetch_webhook_frequency
        job = system.run(
            fetch_range(config.job_id, **common, refresh=config.refresh, webhook_every=every)
        )
    if job.status is JobStatus.FAILED:
        raise dg.Failure(job.error, metadata=fetch_job_metadata(job))
    context.add_output_metadata(fetch_job_metadata(job))


@dg.failure_hook(required_resource_keys={"services"})
def close_job(context: dg.HookContext) -> None:
    """Close the job as soon as its step fails permanently, even if no daemon runs."""
    from automation_pipeline.orchestration.fiche_jobs import fail_range_of

    run = context.instance.get_run_by_id(context.run_id)
    if run is not None:
        fail_range_of(run, error_message_of(context.op_exception), context.resources.services.get())


@dg.job(
    tags=job_tags(),
    hooks={close_job},
    description="Fetches the sales lists of a range of days from the CRM. Green: at least one day could be "
    "read. Red: none could.",
)
def sales_range_fetch() -> None:
    fetch_days()


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(60),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Ends day-range fetches whose worker is lost.",
)
def sweep_range_fetches(
    context: dg.SensorEvaluationContext, services: ServicesResource
) -> dg.SkipReason:
    from automation_pipeline.orchestration.watchdog import end_lost_ranges

    ended = end_lost_ranges(context.instance, services.get())
    return dg.SkipReason(f"Ended {', '.join(ended)}." if ended else "No fetch job is abandoned.")


# In a run of a partition, a check without partitions would stay planned forever, so it has a
# separate job.
sales_list_revalidation = dg.define_asset_job(
    "sales_list_revalidation",
    selection=dg.AssetSelection.assets(sales_list) - dg.AssetSelection.checks(no_stale_day),
    description="Fetches the sales list of a day from the CRM, and checks it.",
    tags={"dagster/max_retries": "3", "dagster/max_runtime": "1800"},
)
sales_list_staleness = dg.define_asset_job(
    "sales_list_staleness",
    selection=dg.AssetSelection.checks(no_stale_day),
    description="Finds days of the last month whose sales list is missing or too old, without requests to the CRM.",
    tags={"dagster/max_retries": "3", "dagster/max_runtime": "1800"},
)


@dg.schedule(
    job=sales_list_revalidation,
    cron_schedule="15 4 * * *",
    execution_timezone=SETTINGS.automation_timezone,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every night at 04:15: fetches yesterday's sales list, which can no longer change.",
)
def yesterdays_sales_list(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    day = yesterday(context)
    return dg.RunRequest(run_key=day, partition_key=day)


stale_sales_lists = dg.ScheduleDefinition(
    name="stale_sales_lists",
    job=sales_list_staleness,
    cron_schedule="0 5 * * *",
    execution_timezone=SETTINGS.automation_timezone,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every night at 05:00, when yesterday's list should be there.",
)
