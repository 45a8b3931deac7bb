"""A step that Celery has brought to this process: it beats while it works, and stops when its run is over."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg
from dagster import DagsterExecutionInterruptedError, DagsterInstance, DagsterRunStatus
from dagster._core.execution.stats import StepEventStatus

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.core.logs import log
from automation_pipeline.orchestration.beside import repeating
from automation_pipeline.orchestration.heartbeat import worker_name
from automation_pipeline.orchestration.recovery import ENDED
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.step_beats import beat_step, begin_step, end_step, take_over_step

# A step whose process dies comes again, and again: after so many times it is the step.
MOST_DELIVERIES = 4
OVER = ENDED | {DagsterRunStatus.CANCELING}

_log = log(__name__)


@dataclass(frozen=True)
class Delivery:
    """`again`: the process that took it before has not ended it, and may be dead."""

    dagster_run_id: str
    step_key: str
    again: bool = False


class AtWorkElsewhereError(TransientError):
    """The message was thought lost and sent again, and is not lost."""


class WorkerKillerError(PermanentError):
    """The step has cost several processes their lives."""


def events_of(delivery: Delivery, instance: DagsterInstance) -> list[dg.DagsterEvent]:
    """Of a step that has succeeded before, whose result its run has not got; of all others none."""
    stats = instance.get_run_step_stats(delivery.dagster_run_id, [delivery.step_key])
    if not any(each.status is StepEventStatus.SUCCESS for each in stats):
        return []
    events = [entry.dagster_event for entry in instance.all_logs(delivery.dagster_run_id) if entry.dagster_event]
    return [event for event in events if event.step_key == delivery.step_key]


def is_wanted(delivery: Delivery, instance: DagsterInstance) -> bool:
    """A message may come late, after its run was told dead and begun anew: then there is nothing to be done."""
    run = instance.get_run_by_id(delivery.dagster_run_id)
    return run is not None and run.status not in OVER


@contextmanager
def at_work(delivery: Delivery, instance: DagsterInstance, services: Services) -> Generator[None]:
    """What is done inside is interrupted, as Dagster interrupts it elsewhere, when the run is over."""
    _begin(delivery, services)
    watch = _Watch(delivery, instance, services)
    try:
        with repeating(
            watch.look, services.settings.automation_heartbeat_seconds, f"No sign of life of {delivery.step_key}"
        ):
            yield
    except DagsterExecutionInterruptedError:
        _log.info("Step %s of run %s was stopped.", delivery.step_key, delivery.dagster_run_id)
    finally:
        _end(delivery, services)


class _Watch:
    def __init__(self, delivery: Delivery, instance: DagsterInstance, services: Services) -> None:
        self._delivery, self._instance, self._services = delivery, instance, services
        self._is_told = False

    def look(self) -> None:
        if not self._is_told and not is_wanted(self._delivery, self._instance):
            self._is_told = True
            os.kill(os.getpid(), signal.SIGINT)
        with self._services.database.transaction() as session:
            beat_step(session, self._delivery.dagster_run_id, self._delivery.step_key, worker_name())


def _begin(delivery: Delivery, services: Services) -> None:
    try:
        with services.database.transaction() as session:
            begun = _begun(session, delivery)
    except AutomationError as error:  # an older schema, or a database that is away: the step itself finds out
        _log.warning("No sign of life of step %s: %s", delivery.step_key, error)
        return
    if begun == 0:
        raise AtWorkElsewhereError(f"Somebody is at work on {delivery.step_key}.")
    if begun > MOST_DELIVERIES:
        _end(delivery, services)
        raise WorkerKillerError(
            f"{delivery.step_key} was begun {MOST_DELIVERIES} times, and each process has died of it."
        )


def _begun(session: Session, delivery: Delivery) -> int:
    who = (delivery.dagster_run_id, delivery.step_key, worker_name())
    return take_over_step(session, *who) if delivery.again else int(begin_step(session, *who))


def _end(delivery: Delivery, services: Services) -> None:
    try:
        with services.database.transaction() as session:
            end_step(session, delivery.dagster_run_id, delivery.step_key, worker_name())
    except AutomationError as error:
        _log.warning("The end of step %s is not written down: %s", delivery.step_key, error)
