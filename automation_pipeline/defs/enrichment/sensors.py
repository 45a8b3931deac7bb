"""The sensor of enrichment: what is old is refreshed, what was left alone is gone on with. Two
copies do no harm."""

import dagster as dg

from automation_pipeline.orchestration.config import every
from automation_pipeline.orchestration.resource import ServicesResource


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(60),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Marks stale companies, refreshes due ones within the quotas of the registers, and requests "
    "workers for jobs that were lost or put off.",
)
def sweep_enrichments(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.enrichment.jobs import sweep_enrichments as sweep
    from automation_pipeline.enrichment.models import NOT_CONFIGURED
    from automation_pipeline.orchestration.enrichment import has_registries

    our = services.get()
    if not has_registries(our):
        return dg.SkipReason(NOT_CONFIGURED)
    report = sweep(registries=our.registries, database=our.database, clock=our.clock)
    our.metering.flush()
    return dg.SkipReason(str(report))
