"""Definitions for all jobs: the deletion of old rows, run requests, failed and terminated runs, and the
relay of notifications."""

import asyncio

import dagster as dg
from pydantic import Field

from automation_pipeline.automation.models.runs import AUTOMATION_JOB
from automation_pipeline.orchestration.days import SETTINGS
from automation_pipeline.orchestration.job_registry import (
    close_failed,
    close_terminated,
    job_definitions,
    run_request,
    take_request,
)
from automation_pipeline.orchestration.ops import (
    ServicesResource,
    StrictConfig,
    dagster_errors,
    every,
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
    from automation_pipeline.orchestration.housekeeping import (
        delete_old_rows,
        housekeeping_metadata,
    )

    system = services.get()
    with dagster_errors():
        take_request(context, system)
        deleted = system.run(delete_old_rows(context.instance, system, is_dry=config.dry_run))
    context.add_output_metadata(housekeeping_metadata(deleted))


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


REQUESTS_PER_TICK = 100


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(5),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Delivers the outbox: realtime events, webhooks and e-mails.",
)
def relay_outbox(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.automation.relay import relay_events
    from automation_pipeline.storage.monitoring import DAEMON, heartbeat_of

    system = services.get()
    beat = heartbeat_of(system.database, DAEMON)
    beat()
    # A separate event loop: sensors run in threads of one process, which may use the services'
    # loop.
    relayed = asyncio.run(
        system.counted(relay_events(system.delivery_services, database=system.database, beat=beat))
    )
    return dg.SkipReason(f"Relayed {relayed.events} events; tried {relayed.messages} messages.")


@dg.sensor(
    jobs=job_definitions(),
    minimum_interval_seconds=every(5),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Launches a Dagster run for every waiting row of run_requests. Schedules, the API, the command "
    "line and recovery all file their work there.",
)
def launch_requests(services: ServicesResource) -> dg.SensorResult | dg.SkipReason:
    from automation_pipeline.storage.run_requests import offer_waiting

    with services.get().database.transaction() as session:
        waiting = offer_waiting(session, limit=REQUESTS_PER_TICK)
    if not waiting:
        return dg.SkipReason("No request is waiting.")
    return dg.SensorResult(run_requests=[run_request(filed) for filed in waiting])


@dg.run_failure_sensor(
    monitored_jobs=job_definitions(),
    minimum_interval_seconds=every(5),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Requests another attempt for a lost Dagster run, and ends the work of a run that failed "
    "permanently.",
)
def run_failures(
    context: dg.RunFailureSensorContext, services: ServicesResource
) -> dg.SkipReason | None:
    from automation_pipeline.orchestration.recovery import ending_of
    from automation_pipeline.orchestration.watchdog import check_run_of, launch_again

    run = context.dagster_run
    if run.job_name == AUTOMATION_JOB:
        done = check_run_of(run, context.instance, services.get())
        return None if done else dg.SkipReason(f"No automation run waits for {run.run_id}.")
    record = context.instance.get_run_record_by_id(run.run_id)
    if record is None:
        return dg.SkipReason(f"Dagster has deleted {run.run_id}.")
    ending = ending_of(record, context.instance)
    if launch_again(run, ending, services.get()):
        return dg.SkipReason(f"{run.run_id} was lost. Requested another launch.")
    close_failed(run, ending.reason, services.get())
    return None


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
    from automation_pipeline.orchestration.watchdog import check_run_of

    run = context.dagster_run
    check_run_of(run, context.instance, services.get())
    requested = close_terminated(run, services.get())
    return None if requested else dg.SkipReason(f"No request waits for {run.run_id}.")
