"""Yesterday's sales list, asked for again every night once the day is complete."""

import dagster as dg

from automation_pipeline.defs.fiches.assets import sales_list
from automation_pipeline.orchestration.days import SETTINGS, yesterday

sales_list_revalidation = dg.define_asset_job(
    "sales_list_revalidation",
    selection=dg.AssetSelection.assets(sales_list),
    description="Ask the CRM for the sales list of a day, and check it.",
    tags={"dagster/max_retries": "3", "dagster/max_runtime": "1800"},
)


@dg.schedule(
    job=sales_list_revalidation,
    cron_schedule="15 4 * * *",
    execution_timezone=SETTINGS.automation_timezone,
    default_status=dg.DefaultScheduleStatus.RUNNING,
)
def yesterdays_sales_list(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Every night at 04:15, when yesterday can no longer change."""
    day = yesterday(context)
    return dg.RunRequest(run_key=day, partition_key=day)
