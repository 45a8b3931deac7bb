"""Run requests: launch them, relay notifications, and close the requests of terminated runs."""

import asyncio

import dagster as dg

from automation_pipeline.orchestration.job_registry import (
    close_terminated,
    job_definitions,
    run_request,
)
from automation_pipeline.orchestration.ops import ServicesResource, every


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
        system.counted(relay_events(system.post_office, database=system.database, beat=beat))
    )
    return dg.SkipReason(f"Relayed {relayed.events} events; tried {relayed.messages} messages.")


AT_MOST = 100


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
        waiting = offer_waiting(session, limit=AT_MOST)
    if not waiting:
        return dg.SkipReason("No request is waiting.")
    return dg.SensorResult(run_requests=[run_request(filed) for filed in waiting])


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
