"""Sensor `due_schedules`: files a run for every schedule that is due. Two copies of a tick at once
do no harm."""

import dagster as dg

from automation_pipeline.orchestration.config import every
from automation_pipeline.orchestration.resource import ServicesResource


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(15),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Decides every due time of the automation schedules once: it files a run, or records why it does not.",
)
def due_schedules(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.automation.schedules import start_due_runs
    from automation_pipeline.bootstrap import due_rules

    our = services.get()
    return dg.SkipReason(
        str(start_due_runs(due_rules(our.settings), database=our.database, clock=our.clock))
    )
