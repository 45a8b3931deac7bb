"""Looks after the runs that nobody may be working on, one by one: does what `aftermath` says."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from dagster import DagsterEventType, DagsterInstance, DagsterRunStatus, RunRecord

from automation_pipeline.automation.domain.run import RunTicket
from automation_pipeline.automation.stages.finalise_run import finalise_run
from automation_pipeline.automation.store.runs import RunAtWork, runs_at_work, runs_never_opened
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.orchestration.aftermath import (
    Aftermath,
    aftermath,
    failure_reason,
    newest_for,
    newest_of_chain,
    silent_since,
    will_retry,
)
from automation_pipeline.orchestration.cancelling import RUN_ID_TAG, terminate_cancelled
from automation_pipeline.orchestration.lost_steps import beats_of_steps, lost_steps, report_lost
from automation_pipeline.storage.step_beats import StepBeat

Case = TypeVar("Case")


def look_after_all(instance: DagsterInstance, services: Services) -> tuple[int, list[str]]:
    """How many runs were looked at, and what was done about some of them."""
    patience = timedelta(seconds=services.settings.automation_lost_after_seconds)
    steps = beats_of_steps(services)
    with services.database.reading() as session:
        at_work = [_lately(run, steps) for run in runs_at_work(session)]
        unopened = runs_never_opened(session, services.clock.now() - patience)
    done = [
        *_each(lost_steps(steps, patience), lambda step: report_lost(step, instance, services)),
        *_each(at_work, lambda run: _look_after(run, instance, services, patience)),
        *_each(unopened, lambda run_id: _look_for(run_id, instance, services)),
        *terminate_cancelled(instance, services),
    ]
    return len(at_work) + len(unopened), done


def _lately(run: RunAtWork, steps: Sequence[StepBeat]) -> RunAtWork:
    """Whoever waits for its steps, or works on one, speaks for the run too."""
    newer = [step.beat_at for step in steps if step.dagster_run_id == run.dagster_run_id]
    return replace(run, beat_at=max([run.beat_at, *newer]))


def _each(cases: Sequence[Case], act: Callable[[Case], str | None]) -> list[str]:
    said: list[str] = []
    for case in cases:
        try:
            sentence = act(case)
        except AutomationError as error:
            sentence = f"{case}: {error}"
        said += [sentence] if sentence else []
    return said


def _look_after(run: RunAtWork, instance: DagsterInstance, services: Services, patience: timedelta) -> str | None:
    record = newest_of_chain(instance, run.dagster_run_id)
    status = record.dagster_run.status if record else None
    silent = run.now - silent_since(run.beat_at, record) > patience
    verdict = aftermath(status, will_retry=record and will_retry(record.dagster_run), silent=silent)
    if verdict is Aftermath.CLOSE:
        return _close(RunTicket(run.run_id, run.attempt), record, instance, services)
    if verdict is Aftermath.REPORT_DEAD and record:
        message = f"No sign of life since {run.beat_at:%Y-%m-%d %H:%M:%S} UTC."
        instance.report_run_failed(record.dagster_run, message)
        return f"Reported {record.dagster_run.run_id} dead"
    return None


def _look_for(run_id: int, instance: DagsterInstance, services: Services) -> str | None:
    """A run that was asked for long ago: if its Dagster run has ended without opening it, nobody else will."""
    record = newest_for(instance, {RUN_ID_TAG: str(run_id)})
    if record is None:
        return None
    verdict = aftermath(record.dagster_run.status, will_retry=will_retry(record.dagster_run), silent=True)
    return _close(RunTicket(run_id, 0), record, instance, services) if verdict is Aftermath.CLOSE else None


def _close(ticket: RunTicket, record: RunRecord | None, instance: DagsterInstance, services: Services) -> str:
    finalise_run(
        ticket.run_id,
        database=services.database,
        clock=services.clock,
        attempt=ticket.attempt,
        breakdown=_reason(record, instance),
    )
    return f"Closed run {ticket.run_id}"


def _reason(record: RunRecord | None, instance: DagsterInstance) -> str:
    if record is None:
        return "Nobody works on the run any more: its Dagster run is gone"
    run = record.dagster_run
    if run.status is DagsterRunStatus.CANCELED:
        return "The run was terminated in Dagster"
    failures = instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_FAILURE)
    events = [entry.dagster_event for entry in failures if entry.dagster_event]
    return failure_reason(events, f"Nobody works on the run any more: its Dagster run ended as {run.status.value}")
