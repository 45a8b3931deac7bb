"""Sensor `terminated_runs`: cancels the work of a Dagster run that a person terminated, at once."""

import dagster as dg

from automation_pipeline.orchestration.config import every
from automation_pipeline.orchestration.job_registry import close_terminated, job_definitions
from automation_pipeline.orchestration.resource import ServicesResource


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.CANCELED,
    monitored_jobs=job_definitions(),
    minimum_interval_seconds=every(5),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Cancels the work of a Dagster run that was terminated in the UI.",
)
def terminated_runs(
    context: dg.RunStatusSensorContext, services: ServicesResource
) -> dg.SkipReason | None:
    from automation_pipeline.orchestration.watchdog import look_after_run_of

    run = context.dagster_run
    look_after_run_of(run, context.instance, services.get())
    requested = close_terminated(run, services.get())
    return None if requested else dg.SkipReason(f"No request waits for {run.run_id}.")
