"""The job `sales_range_fetch`: bring the sales lists of a job over days; and the sensor that ends
what was left."""

import dagster as dg
from pydantic import Field

from automation_pipeline.orchestration.config import StrictConfig, every
from automation_pipeline.orchestration.failures import verdicts, words_of
from automation_pipeline.orchestration.requests import take_request
from automation_pipeline.orchestration.resource import ServicesResource


class RangeConfig(StrictConfig):
    """Which job over days is worked on; the HTTP API files them."""

    job_id: str = Field(description="The job: GET /api/fiches/jobs shows them.")
    refresh: bool = Field(
        default=False, description="Lists that cannot change any more are asked for again too."
    )


@dg.op
def fetch_days(
    context: dg.OpExecutionContext, config: RangeConfig, services: ServicesResource
) -> None:
    """Ask the CRM for the days that remain. A retry goes on where it was. The step fails when no
    day could be read."""
    from automation_pipeline.fiches.fetch_jobs import fetch_range
    from automation_pipeline.fiches.models.fetch_jobs import JobStatus
    from automation_pipeline.orchestration.fetch_jobs import job_metadata

    our = services.get()
    with verdicts():
        take_request(context, our)
        ground = {
            "database": our.database,
            "source": our.crm,
            "clock": our.clock,
            "semaphore": our.sales_list_semaphore,
        }
        every = our.settings.progressive_fetch_webhook_frequency
        job = our.run(
            fetch_range(config.job_id, **ground, refresh=config.refresh, webhook_every=every)
        )
    if job.status is JobStatus.FAILED:
        raise dg.Failure(job.error, metadata=job_metadata(job), allow_retries=False)
    context.add_output_metadata(job_metadata(job))


@dg.failure_hook(required_resource_keys={"services"})
def close_job(context: dg.HookContext) -> None:
    """At once when its step has failed for good, also where no daemon listens."""
    from automation_pipeline.orchestration.fetch_jobs import fail_range_of

    run = context.instance.get_run_by_id(context.run_id)
    if run is not None:
        fail_range_of(run, words_of(context.op_exception), context.resources.services.get())


@dg.job(
    tags={
        "dagster/retry_strategy": "ALL_STEPS",
        "dagster/max_retries": "0",
        "dagster/max_runtime": "18000",
    },
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
    from automation_pipeline.orchestration.endings import end_lost_ranges

    ended = end_lost_ranges(context.instance, services.get())
    return dg.SkipReason(
        f"Ended {', '.join(ended)}." if ended else "No job over days is abandoned."
    )
