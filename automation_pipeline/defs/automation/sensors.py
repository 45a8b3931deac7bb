"""Sensors that end what ended badly: at once when Dagster says so, and by the heartbeat when nobody says anything."""

import dagster as dg

from automation_pipeline.automation.stages.finalise_run import finalise_run
from automation_pipeline.automation.store.runs import unended_run_of_dagster
from automation_pipeline.defs.audits.job import audit_fiche
from automation_pipeline.defs.audits.rerun import audit_rerun
from automation_pipeline.defs.automation.job import automation_run
from automation_pipeline.defs.enrichment.job import company_enrichment
from automation_pipeline.defs.fiches.range import sales_range_fetch
from automation_pipeline.defs.org_jobs.job import org_job
from automation_pipeline.defs.pricing.job import rule_run
from automation_pipeline.defs.pricing.reconciliation import rule_reconciliation
from automation_pipeline.defs.transcription.job import transcribe_fiche
from automation_pipeline.orchestration.aftermath import failure_reason, will_retry
from automation_pipeline.orchestration.config import every
from automation_pipeline.orchestration.endings import end_work_of
from automation_pipeline.orchestration.org_jobs import put_off_job_of
from automation_pipeline.orchestration.pricing import put_off_run_of
from automation_pipeline.orchestration.resource import ServicesResource
from automation_pipeline.orchestration.watchdog import RUN_ID_TAG, look_after_all


@dg.run_failure_sensor(
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
    ],
    minimum_interval_seconds=every(5),
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def run_failures(context: dg.RunFailureSensorContext, services: ServicesResource) -> dg.SkipReason | None:
    """Close the automation run or the audit, or refuse the request, of a Dagster run that failed for good."""
    run, our = context.dagster_run, services.get()
    if will_retry(run) is not False:
        return dg.SkipReason(f"Dagster tries {run.run_id} again, or has not decided yet.")
    reason = failure_reason(context.get_step_failure_events(), context.failure_event.message or "Dagster run failed")
    end_work_of(run, reason, our)
    put_off_run_of(run, reason, our)
    put_off_job_of(run, reason, our)
    tag = run.tags.get(RUN_ID_TAG)
    with our.database.reading() as session:
        ticket = unended_run_of_dagster(session, run.run_id, int(tag) if tag else None)
    if ticket is None:
        return dg.SkipReason(f"No automation run waits for {run.run_id}.")
    finalise_run(ticket.run_id, database=our.database, clock=our.clock, attempt=ticket.attempt, breakdown=reason)
    return None


@dg.sensor(job=automation_run, minimum_interval_seconds=every(15), default_status=dg.DefaultSensorStatus.RUNNING)
def reconcile_stale_runs(context: dg.SensorEvaluationContext, services: ServicesResource) -> dg.SkipReason:
    """Close runs that nobody works on; tell Dagster of those that died without a word, so that it tries them again."""
    looked_at, done = look_after_all(context.instance, services.get())
    return dg.SkipReason("; ".join(done) or f"{looked_at} runs looked at, none is stale.")
