"""Heartbeats of runs and attempts from a background thread."""

import os
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial

from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.automation.runs import send_heartbeat
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.logs import log
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.heartbeats import RUN_WORKER, end_step, record_step_heartbeat

_log = log(__name__)


@contextmanager
def repeating(act: Callable[[], None], seconds: float, complaint: str) -> Generator[None]:
    """At once, then every so many seconds. What fails is logged and tried again: it must never end
    the work."""
    ended = threading.Event()
    context = copy_context()
    thread = threading.Thread(
        target=lambda: context.run(_repeat, act, seconds, complaint, ended),
        daemon=True,
        name="beside",
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _repeat(
    act: Callable[[], None], seconds: float, complaint: str, ended: threading.Event
) -> None:
    said = ""
    while not ended.is_set():
        try:
            act()
        except Exception as error:  # noqa: BLE001  the work itself finds out what is wrong
            if str(error) != said:
                _log.warning("%s: %s", complaint, error)
            said = str(error)
        else:
            said = ""
        ended.wait(seconds)


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@contextmanager
def beating(ticket: RunAttempt, services: Services) -> Generator[None]:
    beat = partial(send_heartbeat, ticket, worker_name(), database=services.database)
    with repeating(
        beat,
        services.settings.automation_heartbeat_seconds,
        f"No heartbeat for run {ticket.run_id}",
    ):
        yield


@contextmanager
def beating_run(dagster_run_id: str, services: Services) -> Generator[None]:
    """The heartbeat of a Dagster run of any job. Its row goes with its end: one that stays was
    lost."""
    worker = worker_name()

    def act(write: Callable[[Session, str, str, str], None]) -> None:
        with services.database.transaction() as session:
            write(session, dagster_run_id, RUN_WORKER, worker)

    seconds = services.settings.automation_heartbeat_seconds
    with repeating(
        partial(act, record_step_heartbeat),
        seconds,
        f"No heartbeat for Dagster run {dagster_run_id}",
    ):
        yield
    with suppress(AutomationError):  # the watchdog removes it later
        act(end_step)
