"""Sensor `sweep_audits`: an audit that nobody works on any more is ended with the reason."""

import dagster as dg

from automation_pipeline.audits.stages.sweep_audits import sweep_audits as end_abandoned
from automation_pipeline.orchestration.resource import ServicesResource


@dg.sensor(target=None, minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def sweep_audits(services: ServicesResource) -> dg.SkipReason:
    our = services.get()
    ended = end_abandoned(our.settings.audit_max_wait_seconds, database=our.database, leases=our.leases)
    return dg.SkipReason(f"Ended {', '.join(ended)}." if ended else "No audit is abandoned.")
