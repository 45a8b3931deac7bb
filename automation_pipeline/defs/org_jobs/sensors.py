"""Sensors of organisations' jobs: what is due is dispatched, queues move, alerts leave. Two copies
do no harm."""

import asyncio

import dagster as dg

from automation_pipeline.orchestration.config import every
from automation_pipeline.orchestration.resource import ServicesResource

RUNNING = dg.DefaultSensorStatus.RUNNING


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(15),
    default_status=RUNNING,
    description="Creates a job for every organisation schedule that is due, or records why it does not.",
)
def due_org_schedules(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.org_jobs import dispatch_due

    return dg.SkipReason(dispatch_due(services.get()))


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(5),
    default_status=RUNNING,
    description="Requests workers for queued organisation jobs, follows jobs that agents do, and ends jobs "
    "whose worker is lost.",
)
def org_job_queue(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.org_jobs import keep_moving

    return dg.SkipReason(keep_moving(services.get()))


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(60),
    default_status=RUNNING,
    description="Raises alerts about organisation schedules and jobs, and delivers them to the webhook.",
)
def org_job_alerts(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.org_jobs import alert_about_jobs

    our = services.get()
    # A loop of its own: sensors run in threads of one process, where the services' loop may be at
    # work.
    return dg.SkipReason(asyncio.run(our.counted(alert_about_jobs(our))))
