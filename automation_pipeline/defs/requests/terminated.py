"""Sensor `terminated_runs`: what a Dagster run that somebody terminated was to do is told to be
undone, at once."""

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
from automation_pipeline.orchestration.endings import TERMINATED, end_work_of
from automation_pipeline.orchestration.org_jobs import cancel_job_of
from automation_pipeline.orchestration.pricing import cancel_run_of
from automation_pipeline.orchestration.resource import ServicesResource
from automation_pipeline.orchestration.watchdog import look_after_run_of


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.CANCELED,
    monitored_jobs=[
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
    description="Cancels the work of a Dagster run that was terminated in the UI.",
)
def terminated_runs(
    context: dg.RunStatusSensorContext, services: ServicesResource
) -> dg.SkipReason | None:
    run = context.dagster_run
    look_after_run_of(run, context.instance, services.get())
    requested = end_work_of(run, TERMINATED, services.get())
    cancel_run_of(run, services.get())
    cancel_job_of(run, services.get())
    return None if requested else dg.SkipReason(f"No request waits for {run.run_id}.")
