"""Sensor `sweep_audits`: an audit that nobody works on any more is ended with the reason."""

import dagster as dg

from automation_pipeline.orchestration.config import every
from automation_pipeline.orchestration.resource import ServicesResource


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(30),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Ends audits whose worker is lost, and batches of audits that are complete.",
)
def sweep_audits(context: dg.SensorEvaluationContext, services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.audits.audits import sweep_audits as end_abandoned
    from automation_pipeline.orchestration.endings import end_lost_audits

    our = services.get()
    abandoned = end_abandoned(
        our.settings.audit_max_wait_seconds, database=our.database, claims=our.claims
    )
    ended = [*abandoned, *end_lost_audits(context.instance, our)]
    return dg.SkipReason(f"Ended {', '.join(ended)}." if ended else "No audit is abandoned.")
