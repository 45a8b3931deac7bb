"""The configured executor of the steps, and the heartbeats of the processes that execute them.

The jobs are the same on each executor. The process that executes a run supervises it."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import dagster as dg

from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.core.errors import AutomationError, PermanentError
from automation_pipeline.core.logs import log
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.dagster_internals import (
    ExecutionPlan,
    PlanOrchestrationContext,
)
from automation_pipeline.orchestration.ops import worker_name
from automation_pipeline.storage.monitoring import RUN_WORKER, end_step, record_step_heartbeat

if TYPE_CHECKING:
    from automation_pipeline.bootstrap import Services

# `dagster job execute` waits at most this long to deliver webhooks, e-mails and realtime events.
DELIVERY_SECONDS = 10.0

_log = log(__name__)

# What the definitions and the steps of a run load only when they begin.
PRELOADED = [
    "automation_pipeline.definitions",
    "automation_pipeline.defs.automation",
    "automation_pipeline.automation.selection",
    "automation_pipeline.automation.fetching",
    "automation_pipeline.automation.transcribing",
    "automation_pipeline.automation.auditing",
    "automation_pipeline.orchestration.run_summary",
    "automation_pipeline.clients.crm",
]


def executor_of(settings: Settings) -> dg.ExecutorDefinition:
    """The configured executor with supervision. Its name, config schema and requirements stay the
    same."""
    engine = _engine(settings)
    create = engine.executor_creation_fn
    assert create is not None  # noqa: S101  only Dagster's abstract definition has none
    return dg.ExecutorDefinition(
        name=engine.name,
        config_schema=engine.config_schema,  # pyright: ignore[reportArgumentType]  it accepts a resolved schema too
        requirements=engine.get_requirements,
        executor_creation_fn=lambda context: SupervisedExecutor(create(context)),
        description=engine.description,
    )


class SupervisedExecutor(dg.Executor):
    """Runs the steps with another executor and sends the heartbeat of the run. If no daemon
    launched the run, it delivers the notifications before it ends, because there may be no daemon
    to relay them."""

    def __init__(self, engine: dg.Executor) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> object:
        """Dagster's Celery loop uses attributes that only Celery's executor has."""
        return getattr(self._engine, name)

    @property
    def retries(self):  # noqa: ANN201  Dagster's private type
        return self._engine.retries

    @property
    def step_dependency_config(self):  # noqa: ANN201  Dagster's private type
        return self._engine.step_dependency_config

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        from automation_pipeline.bootstrap import services  # noqa: PLC0415  with what needs it, and not before

        alone = plan_context.dagster_run.remote_job_origin is None
        since = _database_time(services()) if alone else None
        with dagster_heartbeat(plan_context.run_id, services()):
            yield from self._engine.execute(plan_context, execution_plan)
        if since is not None:
            deliver_notifications(services(), since)


def deliver_notifications(
    services: "Services", since: datetime, seconds: float = DELIVERY_SECONDS
) -> None:
    """Relay the events that this process has put into the outbox since that instant. Best effort:
    the relay delivers the rest, and a failure does not change the result of the run."""
    from automation_pipeline.automation.relay import relay_events  # noqa: PLC0415  where it is used

    async def relay() -> None:
        async with asyncio.timeout(seconds):
            await relay_events(
                services.delivery_services,
                database=services.database,
                budget_seconds=seconds,
                caused_since=since,
            )

    try:
        services.run(relay())
    except TimeoutError:
        _log.warning(
            "Some notifications were not delivered within %.0f s: the relay delivers them later.",
            seconds,
        )
    except Exception as error:  # noqa: BLE001  the work is done: a notification must not fail the run
        _log.warning("Notifications wait for the relay: %s", error)


def _database_time(services: "Services") -> datetime | None:
    from automation_pipeline.storage.statements import database_time  # noqa: PLC0415  where it is used

    try:
        with services.database.reading() as session:
            return database_time(session)
    except AutomationError:  # the steps report the cause
        return None


def _engine(settings: Settings) -> dg.ExecutorDefinition:
    """Import only the configured executor: Celery alone is half as heavy as Dagster."""
    match settings.automation_executor:
        case "in_process":
            return dg.in_process_executor
        case "multiprocess":
            return _multiprocess(settings)
        case "celery":
            from automation_pipeline.orchestration.celery import celery_executor  # noqa: PLC0415  only here

            return celery_executor(settings)
        case "k8s":
            return _kubernetes(settings)


def _multiprocess(settings: Settings) -> dg.ExecutorDefinition:
    return dg.multiprocess_executor.configured(
        {
            "max_concurrent": settings.automation_max_processes,
            # Steps fork from a process that has imported everything, which halves their start time.
            "start_method": {"forkserver": {"preload_modules": PRELOADED}},
        }
    )


def _kubernetes(settings: Settings) -> dg.ExecutorDefinition:
    """Dagster's chart configures the image, secrets and volumes of the steps like those of the
    run."""
    try:
        executor: dg.ExecutorDefinition = import_module("dagster_k8s").k8s_job_executor
    except ModuleNotFoundError:
        raise PermanentError(
            "AUTOMATION_EXECUTOR=k8s needs the package dagster-k8s: install this one with its extra `kubernetes`."
        ) from None
    return executor.configured({"max_concurrent": settings.automation_max_processes}, name="k8s")


def processes_of(settings: Settings) -> int:
    """The number of steps that can run at the same time."""
    return 1 if settings.automation_executor == "in_process" else settings.automation_max_processes


@contextmanager
def repeating(act: Callable[[], None], seconds: float, complaint: str) -> Generator[None]:
    """Call `act` at once and then at this interval while the body runs. A failure is logged (a
    lasting one once) and never ends the body."""
    ended = threading.Event()

    def repeat() -> None:
        last_failure = ""
        while not ended.is_set():
            failure = ""
            try:
                act()
            except Exception as error:  # noqa: BLE001  the work itself reports the cause
                failure = str(error)
                if failure != last_failure:
                    _log.warning("%s: %s", complaint, error)
            last_failure = failure
            ended.wait(seconds)

    thread = threading.Thread(
        target=copy_context().run, args=(repeat,), daemon=True, name="heartbeat"
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def beating(attempt: RunAttempt, services: "Services") -> Generator[None]:
    """Send the heartbeat of an attempt until a newer attempt takes over."""
    from automation_pipeline.automation.runs import send_heartbeat  # noqa: PLC0415  steps of other jobs only need the worker's name

    beat = partial(send_heartbeat, attempt, worker_name(), database=services.database)
    seconds = services.settings.automation_heartbeat_seconds
    with repeating(beat, seconds, f"No heartbeat for run {attempt.run_id}"):
        yield


@contextmanager
def dagster_heartbeat(
    dagster_run_id: str,
    services: "Services",
    *,
    step_key: str = RUN_WORKER,
    after_each: Callable[[], None] = lambda: None,
) -> Generator[None]:
    """Send the heartbeat of a Dagster run or of one of its steps. The row is deleted at the end: a
    silent row that remains belongs to a lost process."""
    row = dagster_run_id, step_key, worker_name()

    def beat() -> None:
        with services.database.transaction() as session:
            record_step_heartbeat(session, *row)
        after_each()

    seconds = services.settings.automation_heartbeat_seconds
    try:
        with repeating(beat, seconds, f"No heartbeat for Dagster run {dagster_run_id} {step_key}"):
            yield
    finally:
        # If the row cannot be deleted now, the watchdog deletes it later.
        with suppress(AutomationError), services.database.transaction() as session:
            end_step(session, *row)
