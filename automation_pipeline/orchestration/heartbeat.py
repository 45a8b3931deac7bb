"""Heartbeats from a background thread: for an attempt at an automation run, for a Dagster run, and
for a step on another host."""

import os
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial

from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.logs import log
from automation_pipeline.storage.monitoring import RUN_WORKER, end_step, record_step_heartbeat

_log = log(__name__)


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


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@contextmanager
def beating(attempt: RunAttempt, services: Services) -> Generator[None]:
    """Send the heartbeat of an attempt until a newer attempt takes over."""
    from automation_pipeline.automation.runs import send_heartbeat  # noqa: PLC0415  steps of other jobs only need the worker's name

    beat = partial(send_heartbeat, attempt, worker_name(), database=services.database)
    seconds = services.settings.automation_heartbeat_seconds
    with repeating(beat, seconds, f"No heartbeat for run {attempt.run_id}"):
        yield


@contextmanager
def dagster_heartbeat(
    dagster_run_id: str,
    services: Services,
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
