"""Steps of runs on Celery workers: Dagster's own executor and task on Redis, with heartbeats.

A worker acknowledges a message before it starts the step, so that no step runs twice. A lost step
ends the attempt: the watchdog requests the next one. Start workers with `automation worker`, or
`celery -A automation_pipeline.orchestration.celery`.
"""

import os
import signal
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import cache, partial

import celery
import dagster as dg
from celery.exceptions import DuplicateTaskNameWarning, TaskRevokedError
from celery.result import AsyncResult
from dagster import DagsterExecutionInterruptedError, DagsterInstance, DagsterRunStatus
from dagster_celery.config import DEFAULT_CONFIG
from dagster_celery.core_execution_loop import core_celery_execution_loop
from dagster_celery.executor import CeleryExecutor
from dagster_celery.make_app import make_app
from dagster_celery.tasks import create_task
from dagster_shared.serdes.serdes import JsonSerializableValue
from kombu.exceptions import OperationalError

from automation_pipeline.bootstrap import Services, services
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.logs import log
from automation_pipeline.core.settings import Settings, load_settings
from automation_pipeline.orchestration.dagster_internals import (
    ExecutionPlan,
    PlanOrchestrationContext,
    RetryMode,
    send_interrupt,
    submit_task,
    unpack_step,
)
from automation_pipeline.orchestration.executor import PRELOADED, dagster_heartbeat, repeating
from automation_pipeline.orchestration.recovery import ENDED
from automation_pipeline.storage.monitoring import step_heartbeats

CONNECT_SECONDS, ANSWER_SECONDS = 10, 30
# A run polls for results every second. Results that no run reads are deleted after this period.
RESULTS_KEPT_SECONDS = 6 * 3600

_log = log(__name__)


def broker_of(settings: Settings) -> str:
    url = settings.automation_celery_broker_url or settings.redis_url
    if url is None:
        raise PermanentError(
            "AUTOMATION_CELERY_BROKER_URL is not set, nor is REDIS_URL: with AUTOMATION_EXECUTOR=celery one of them is "
            "the Redis that carries steps to the workers."
        )
    return f"redis+socket://{url.removeprefix('unix://')}" if url.startswith("unix://") else url


def celery_settings(settings: Settings) -> dict[str, object]:
    """Celery's setting names. A worker takes a message only when it can start the step, and
    acknowledges it at once."""
    answer = {
        "socket_timeout": ANSWER_SECONDS,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_keepalive": True,
    }
    return {
        **DEFAULT_CONFIG,
        "task_acks_late": False,
        "worker_disable_prefetch": True,
        "worker_prefetch_multiplier": 1,
        "worker_concurrency": settings.automation_celery_concurrency,
        "worker_redirect_stdouts": False,
        "broker_transport_options": answer,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "task_publish_retry": False,  # the process of the run retries between two heartbeats
        "result_expires": RESULTS_KEPT_SECONDS,
        "redis_socket_timeout": ANSWER_SECONDS,
        "redis_socket_connect_timeout": CONNECT_SECONDS,
        "redis_socket_keepalive": True,
    }


def celery_executor(settings: Settings) -> dg.ExecutorDefinition:
    """An executor without config, so that Dagster's pages show no addresses and passwords."""
    broker_of(settings)

    @dg.executor(name="celery", requirements=dg.multiple_process_executor_requirements())
    def steps_on_workers(_context: dg.InitExecutorContext) -> StepsOnWorkers:
        return StepsOnWorkers(settings, services())

    return steps_on_workers


class StepsOnWorkers(CeleryExecutor):
    def __init__(self, settings: Settings, services: Services) -> None:
        broker = broker_of(settings)
        super().__init__(
            RetryMode.ENABLED,
            broker=broker,
            backend=broker,
            config_source=celery_settings(settings),
        )
        self._services = services

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Generator[dg.DagsterEvent]:
        # Dagster creates the same Celery task for every step.
        warnings.filterwarnings("ignore", category=DuplicateTaskNameWarning)
        watch = StepWatch(
            plan_context.run_id, plan_context.instance, self._services, make_app(self.app_args())
        )
        seconds = self._services.settings.automation_heartbeat_seconds
        with repeating(watch.check, seconds, "The steps of the run are not watched"):
            yield from core_celery_execution_loop(
                plan_context, execution_plan, step_execution_fn=watch.send
            )


class StepWatch:
    """The state of the run's steps. `is_over`: the run no longer waits for results."""

    def __init__(
        self, run_id: str, instance: DagsterInstance, services: Services, app: celery.Celery
    ) -> None:
        self._run_id, self._instance, self._services, self._app = run_id, instance, services, app
        self._steps: dict[str, SentStep] = {}
        self._missing_since: dict[str, float] = {}
        self.is_over = False

    def send(self, app: celery.Celery, context, step, *where: object) -> "SentStep":  # noqa: ANN001  Dagster's own
        outage_errors = (OperationalError, OSError, *app.backend.connection_errors)
        self._steps[step.key] = SentStep(
            self, step.key, partial(submit_task, app, context, step, *where), outage_errors
        )
        return self._steps[step.key]

    def check(self) -> None:
        """Stop waiting if the run has ended elsewhere, and fail the run if the broker has lost a
        message."""
        run = self._instance.get_run_by_id(self._run_id)
        if run is None or run.status in ENDED:
            if not self.is_over:
                send_interrupt()
            self.is_over = True
        elif lost := self._lost_message():
            self._instance.report_run_failed(
                run, f"The message of step {lost} is lost: no worker has started it."
            )

    def _lost_message(self) -> str | None:
        """The name of a step that no worker has started although the queue has been empty for as
        long as a process may be silent."""
        with self._services.database.reading() as session:
            started = {beat.step_key for beat in step_heartbeats(session, self._run_id)}
        missing = [
            key for key, step in list(self._steps.items()) if step.is_pending and key not in started
        ]
        if not missing or not self._is_queue_empty():
            self._missing_since = {}
            return None
        now = time.monotonic()
        self._missing_since = {key: self._missing_since.get(key, now) for key in missing}
        lost_after = self._services.settings.automation_lost_after_seconds
        return next(
            (key for key, since in self._missing_since.items() if now - since > lost_after), None
        )

    def _is_queue_empty(self) -> bool:
        with self._app.connection_for_read() as connection:
            return (
                connection.default_channel.queue_declare(
                    self._app.conf.task_default_queue
                ).message_count
                == 0
            )


class SentStep:
    """The result of a step for Dagster's loop. It is sent and checked again during an outage of the
    broker."""

    def __init__(
        self,
        watch: StepWatch,
        key: str,
        send: Callable[[], AsyncResult],
        outage_errors: tuple[type[Exception], ...],
    ) -> None:
        self._watch, self._key, self._send, self._outage_errors = watch, key, send, outage_errors
        self._result: AsyncResult | None = None
        self._is_taken = False
        self._is_ready()

    @property
    def is_pending(self) -> bool:
        """Whether the step is sent and has no result yet."""
        return self._result is not None and not self._is_taken and not self._is_ready()

    def ready(self) -> bool:
        return self._watch.is_over or self._is_ready()

    def get(self) -> object:
        self._is_taken = True
        if self._result is None or not self._is_ready():
            raise TaskRevokedError(f"The run has ended before {self._key}.")
        if self._result.failed():  # a lost step ends the attempt, so do not wait for the others
            self._watch.is_over = True
        return self._result.get()

    def revoke(self) -> None:
        with suppress(*self._outage_errors):
            if self._result is not None:
                self._result.revoke()

    def _is_ready(self) -> bool:
        try:
            if self._result is None:
                self._result = self._send()
            return self._result.ready()
        except self._outage_errors as error:
            _log.warning("Step %s waits for the broker: %s", self._key, error)
            return False


class StepTask(celery.Task):
    """Executes a step with Dagster's own task. It sends the step's heartbeat, and interrupts the
    step if its run ends elsewhere."""

    abstract = True

    def __call__(
        self, execute_step_args_packed: JsonSerializableValue, executable_dict: object
    ) -> list[str]:
        arguments = unpack_step(execute_step_args_packed)
        run_id, step_key = arguments.run_id, ",".join(arguments.step_keys_to_execute or [])
        with DagsterInstance.from_ref(arguments.instance_ref) as instance:  # pyright: ignore[reportArgumentType]  always set
            if not _is_wanted(run_id, instance):
                return []
            is_interrupted = False

            def interrupt_if_unwanted() -> None:
                nonlocal is_interrupted
                if not is_interrupted and not _is_wanted(run_id, instance):
                    is_interrupted = True
                    # Dagster itself interrupts a step with this signal.
                    os.kill(os.getpid(), signal.SIGINT)

            try:
                with dagster_heartbeat(
                    run_id, services(), step_key=step_key, after_each=interrupt_if_unwanted
                ):
                    return self.run(execute_step_args_packed, executable_dict)
            except DagsterExecutionInterruptedError:
                _log.info("Step %s of run %s was stopped.", step_key, run_id)
                return []


def _is_wanted(run_id: str, instance: DagsterInstance) -> bool:
    run = instance.get_run_by_id(run_id)
    return run is not None and run.status not in ENDED | {DagsterRunStatus.CANCELING}


@cache
def _worker_app() -> celery.Celery:
    executor = StepsOnWorkers(load_settings(), services())
    worker_app = make_app({**executor.app_args(), "include": PRELOADED})
    create_task(worker_app, base=StepTask)
    return worker_app


def __getattr__(name: str) -> celery.Celery:
    """Celery reads the attribute `app`; the process of a run does not need it."""
    if name == "app":
        return _worker_app()
    raise AttributeError(name)
