"""Sensor `launch_requests`: offers every filed request to Dagster. Two copies of a tick at once do
no harm."""

import dagster as dg

from automation_pipeline.defs.audits.job import audit_fiche
from automation_pipeline.defs.audits.rerun import audit_rerun
from automation_pipeline.defs.automation.job import automation_run
from automation_pipeline.defs.enrichment.job import company_enrichment
from automation_pipeline.defs.fiches.range import sales_range_fetch
from automation_pipeline.defs.housekeeping.job import housekeeping
from automation_pipeline.defs.org_jobs.job import org_job
from automation_pipeline.defs.pricing.job import rule_run
from automation_pipeline.defs.pricing.reconciliation import rule_reconciliation
from automation_pipeline.defs.transcription.job import transcribe_fiche
from automation_pipeline.orchestration.config import every
from automation_pipeline.orchestration.requests import run_request
from automation_pipeline.orchestration.resource import ServicesResource
from automation_pipeline.storage.run_requests import offer_waiting

AT_MOST = 100


@dg.sensor(
    jobs=[
        automation_run,
        transcribe_fiche,
        audit_fiche,
        audit_rerun,
        sales_range_fetch,
        rule_run,
        rule_reconciliation,
        company_enrichment,
        org_job,
        housekeeping,
    ],
    minimum_interval_seconds=every(5),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Launches a Dagster run for every waiting row of run_requests. Schedules, the API, the command "
    "line and recovery all file their work there.",
)
def launch_requests(services: ServicesResource) -> dg.SensorResult | dg.SkipReason:
    with services.get().database.transaction() as session:
        wishes = offer_waiting(session, limit=AT_MOST)
    if not wishes:
        return dg.SkipReason("No request is waiting.")
    return dg.SensorResult(run_requests=[run_request(wish) for wish in wishes])
