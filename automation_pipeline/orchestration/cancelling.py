"""Stops the Dagster runs of automation runs that an operator has cancelled, should they not stop by themselves."""

from datetime import timedelta

from dagster import DagsterError, DagsterInstance, DagsterRunStatus, RunsFilter

from automation_pipeline.automation.store.progress import runs_cancelled
from automation_pipeline.bootstrap import Services

RUN_ID_TAG = "automation/run_id"

# A run that is fenced off ends at its next step; what has not ended within the hour is a matter for the watchdog.
PATIENCE, HORIZON = timedelta(seconds=5), timedelta(hours=1)
UNENDED = (DagsterRunStatus.QUEUED, DagsterRunStatus.STARTED)


def terminate_cancelled(instance: DagsterInstance, services: Services) -> list[str]:
    """What was done about them: one query here and one of Dagster's, however many there are."""
    now = services.clock.now()
    with services.database.reading() as session:
        run_ids = runs_cancelled(session, now - HORIZON, now - PATIENCE)
    if not run_ids:
        return []
    tags = {RUN_ID_TAG: [str(run_id) for run_id in run_ids]}
    runs = instance.get_runs(RunsFilter(statuses=list(UNENDED), tags=tags))
    return [_terminate(run.run_id, instance) for run in runs]


def _terminate(dagster_run_id: str, instance: DagsterInstance) -> str:
    """A queued run is taken out of the queue, a started one interrupted."""
    try:
        heard = instance.run_coordinator.cancel_run(dagster_run_id)
    except DagsterError as error:
        return f"{dagster_run_id} was cancelled and cannot be terminated: {error}"
    return f"Terminated {dagster_run_id}" if heard else f"{dagster_run_id} was cancelled and cannot be reached"
