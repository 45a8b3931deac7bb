"""Looks after the steps of one run that work on other hosts: from a thread of the process that waits for them."""

import time
from functools import partial

import dagster as dg
from celery import Celery
from dagster._utils import send_interrupt
from dagster_celery.executor import _submit_task as submit_task  # pyright: ignore[reportPrivateUsage]  its own public door is the loop alone
from kombu.exceptions import OperationalError

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.logs import log
from automation_pipeline.orchestration.awaited import Awaited
from automation_pipeline.orchestration.heartbeat import worker_name
from automation_pipeline.orchestration.recovery import ENDED
from automation_pipeline.storage.step_beats import RUN_WORKER, StepBeat, beat_step, beats, end_step, forget_steps

# For this share of the time after which somebody silent is lost, a step must be found nowhere: between the queue and
# its first beat it is in nobody's hands. One that is sent again for nothing is not done twice.
PART_OF_PATIENCE = 0.25

_log = log(__name__)


class Overseer:
    """`look` beats for the run, ends the waiting when the run has ended elsewhere, and finds out which steps the broker
    has lost: those that neither work nor stand in a queue that is empty."""

    def __init__(self, run_id: str, instance: dg.DagsterInstance, services: Services, app: Celery) -> None:
        self._run_id, self._instance, self._services, self._app = run_id, instance, services, app
        self._patience = services.settings.automation_lost_after_seconds
        self._awaited: dict[str, Awaited] = {}
        self._nowhere_since: dict[str, float] = {}
        self.is_over = False

    def send(self, app: Celery, context, step, *where: object) -> Awaited:  # noqa: ANN001  Dagster's own, untyped
        away = (OperationalError, OSError, *app.backend.connection_errors)
        self._awaited[step.key] = Awaited(step.key, partial(submit_task, app, context, step, *where), self, away)
        return self._awaited[step.key]

    def is_lost(self, step_key: str) -> bool:
        """Said once: whoever asks sends it again."""
        since = self._nowhere_since.get(step_key)
        if since is None or time.monotonic() - since < PART_OF_PATIENCE * self._patience:
            return False
        self._nowhere_since.pop(step_key, None)
        _log.warning("The broker has lost step %s of run %s: it is sent again.", step_key, self._run_id)
        return True

    def look(self) -> None:
        if not self.is_over:
            self._look_at_run()
            self._look_for_lost(self._beat())

    def leave(self) -> None:
        with self._services.database.transaction() as session:
            end_step(session, self._run_id, RUN_WORKER, worker_name())

    def _look_at_run(self) -> None:
        """A run that was reported dead while this process was alive, or cancelled by force."""
        run = self._instance.get_run_by_id(self._run_id)
        if run is None or run.status in ENDED:
            self.is_over = True
            send_interrupt()

    def _beat(self) -> list[StepBeat]:
        with self._services.database.transaction() as session:
            beat_step(session, self._run_id, RUN_WORKER, worker_name())
            forget_steps(session, self._run_id, [key for key, each in list(self._awaited.items()) if each.is_taken])
            return beats(session, self._run_id)

    def _look_for_lost(self, at_work: list[StepBeat]) -> None:
        here = {beat.step_key for beat in at_work}
        missing = [key for key, awaited in list(self._awaited.items()) if key not in here and not awaited.is_taken]
        if not missing or not self._queue_is_empty():
            self._nowhere_since = {}
            return
        now = time.monotonic()
        self._nowhere_since = {key: self._nowhere_since.get(key, now) for key in missing}

    def _queue_is_empty(self) -> bool:
        queue = self._app.conf.task_default_queue
        with self._app.connection_for_read() as connection:
            return connection.default_channel.queue_declare(queue).message_count == 0
