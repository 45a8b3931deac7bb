"""Deletion of old rows."""

import dagster as dg
from pydantic import Field

from automation_pipeline.orchestration.days import SETTINGS
from automation_pipeline.orchestration.job_registry import take_request
from automation_pipeline.orchestration.ops import (
    ServicesResource,
    StrictConfig,
    dagster_errors,
    job_tags,
)


class HousekeepingConfig(StrictConfig):
    """The variables `..._KEEP_DAYS` set the retention periods."""

    dry_run: bool = Field(default=False, description="Only count what would be deleted.")


@dg.op
def keep_house_tidy(
    context: dg.OpExecutionContext, config: HousekeepingConfig, services: ServicesResource
) -> None:
    """Delete rows that are past their retention period, in small steps. Business results are never
    deleted."""
    from automation_pipeline.orchestration.retention import delete_old_rows, housekeeping_page

    system = services.get()
    with dagster_errors():
        take_request(context, system)
        deleted = system.run(delete_old_rows(context.instance, system, is_dry=config.dry_run))
    context.add_output_metadata(housekeeping_page(deleted))


@dg.job(
    tags=job_tags(),
    description="Deletes rows, files and Dagster events that are older than their retention. Business results stay.",
)
def housekeeping() -> None:
    keep_house_tidy()


nightly_housekeeping = dg.ScheduleDefinition(
    name="nightly_housekeeping",
    job=housekeeping,
    cron_schedule="30 3 * * *",
    execution_timezone=SETTINGS.automation_timezone,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Every night at 03:30, before the sales lists are fetched.",
)
