"""Sensors that recover lost runs and end failed ones: at once when Dagster reports it, else by the
heartbeat."""

import dagster as dg

from automation_pipeline.defs.automation.job import automation_run
from automation_pipeline.orchestration.config import every
from automation_pipeline.orchestration.job_registry import (
    AUTOMATION_RUN,
    close_failed,
    job_definitions,
)
from automation_pipeline.orchestration.resource import ServicesResource


@dg.run_failure_sensor(
    monitored_jobs=job_definitions(),
    minimum_interval_seconds=every(5),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Requests another attempt for a Dagster run that was lost, and ends the work of one that failed "
    "for good.",
)
def run_failures(
    context: dg.RunFailureSensorContext, services: ServicesResource
) -> dg.SkipReason | None:
    from automation_pipeline.orchestration.recovery import ending_of
    from automation_pipeline.orchestration.watchdog import launch_again, look_after_run_of

    run = context.dagster_run
    if run.job_name == AUTOMATION_RUN:
        done = look_after_run_of(run, context.instance, services.get())
        return None if done else dg.SkipReason(f"No automation run waits for {run.run_id}.")
    record = context.instance.get_run_record_by_id(run.run_id)
    if record is None:
        return dg.SkipReason(f"Dagster has deleted {run.run_id}.")
    ending = ending_of(record, context.instance)
    if launch_again(run, ending, services.get()):
        return dg.SkipReason(f"{run.run_id} was lost: another launch is requested.")
    close_failed(run, ending.reason, services.get())
    return None


@dg.sensor(
    job=automation_run,
    minimum_interval_seconds=every(10),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Finds runs whose process was lost, and requests their next attempt or closes them.",
)
def reconcile_stale_runs(
    context: dg.SensorEvaluationContext, services: ServicesResource
) -> dg.SkipReason:
    from automation_pipeline.orchestration.watchdog import look_after_all

    looked_at, done = look_after_all(context.instance, services.get())
    return dg.SkipReason("; ".join(done) or f"{looked_at} runs looked at, none is stale.")
