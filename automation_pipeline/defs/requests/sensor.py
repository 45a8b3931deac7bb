"""Sensor `launch_requests`: offers every filed request to Dagster. Two copies of a tick at once do
no harm."""

import dagster as dg

from automation_pipeline.orchestration.config import every
from automation_pipeline.orchestration.job_registry import job_definitions, run_request
from automation_pipeline.orchestration.resource import ServicesResource

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
