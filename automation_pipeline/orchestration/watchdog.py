"""Looks after one run at work: applies what `aftermath` says."""

from datetime import timedelta

import dagster as dg
from dagster import DagsterInstance

from automation_pipeline.automation.stages.finalise_run import finalise_run
from automation_pipeline.automation.store.runs import RunAtWork
from automation_pipeline.bootstrap import Services
from automation_pipeline.orchestration.aftermath import (
    Aftermath,
    aftermath,
    newest_of_chain,
    silent_since,
    will_retry,
)


def look_after(run: RunAtWork, instance: DagsterInstance, services: Services, patience: timedelta) -> str | None:
    """What was done about it, if anything."""
    record = newest_of_chain(instance, run.dagster_run_id)
    status = record.dagster_run.status if record else None
    silent = run.now - silent_since(run.beat_at, record) > patience
    verdict = aftermath(status, will_retry=bool(record and will_retry(record.dagster_run)), silent=silent)
    if verdict is Aftermath.CLOSE:
        return _close(run, status, services)
    if verdict is Aftermath.REPORT_DEAD and record:
        message = f"No sign of life since {run.beat_at:%Y-%m-%d %H:%M:%S} UTC."
        instance.report_run_failed(record.dagster_run, message)
        return f"Reported {record.dagster_run.run_id} dead"
    return None


def _close(run: RunAtWork, status: dg.DagsterRunStatus | None, services: Services) -> str:
    ended = f"its Dagster run ended as {status.value}" if status else "its Dagster run is gone"
    reason = f"Nobody works on the run any more: {ended}"
    finalise_run(run.run_id, database=services.database, clock=services.clock, breakdown=reason)
    return f"Closed run {run.run_id}"
