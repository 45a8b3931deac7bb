"""Sensor `sweep_transcription_runs`: a run that nobody works on any more is ended with the
reason."""

import dagster as dg

from automation_pipeline.orchestration.config import every
from automation_pipeline.orchestration.resource import ServicesResource


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(30),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Ends transcription runs whose worker is lost.",
)
def sweep_transcription_runs(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.transcription.runs import sweep_transcriptions

    our = services.get()
    ended = sweep_transcriptions(our.settings.transcription_max_wait_seconds, database=our.database)
    return dg.SkipReason(
        f"Ended {', '.join(ended)}." if ended else "No transcription run is abandoned."
    )
