"""Every night: yesterday's sales list once the day is complete, then a look for days whose list is
missing or old."""

import dagster as dg

from automation_pipeline.defs.fiches.assets import sales_list
from automation_pipeline.defs.fiches.checks import no_stale_day
from automation_pipeline.orchestration.days import SETTINGS, yesterday

# A check without partitions stays planned for ever in a run of a partition: it has a job of its
# own.
sales_list_revalidation = dg.define_asset_job(
    "sales_list_revalidation",
    selection=dg.AssetSelection.assets(sales_list) - dg.AssetSelection.checks(no_stale_day),
    description="Ask the CRM for the sales list of a day, and check it.",
    tags={"dagster/max_retries": "3", "dagster/max_runtime": "1800"},
)
sales_list_staleness = dg.define_asset_job(
    "sales_list_staleness",
    selection=dg.AssetSelection.checks(no_stale_day),
    description="Name the days of the last month whose sales list is missing or too old; nobody is asked.",
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
