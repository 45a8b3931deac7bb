"""Heartbeats from a background thread: of a Dagster run, by the process that executes it, and of an attempt."""

import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial

from automation_pipeline.automation.domain.run import RunTicket
from automation_pipeline.automation.stages.keep_alive import keep_alive
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.orchestration.beside import repeating
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.step_beats import RUN_WORKER, beat_step, end_step


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@contextmanager
def beating(ticket: RunTicket, services: Services) -> Generator[None]:
    beat = partial(keep_alive, ticket, worker_name(), database=services.database)
    with repeating(beat, services.settings.automation_heartbeat_seconds, f"No heartbeat for run {ticket.run_id}"):
        yield


@contextmanager
def beating_run(dagster_run_id: str, services: Services) -> Generator[None]:
    """The heartbeat of a Dagster run of any job. Its row goes with its end: one that stays was lost."""
    worker = worker_name()

    def act(write: Callable[[Session, str, str, str], None]) -> None:
        with services.database.transaction() as session:
            write(session, dagster_run_id, RUN_WORKER, worker)

    seconds = services.settings.automation_heartbeat_seconds
    with repeating(partial(act, beat_step), seconds, f"No heartbeat for Dagster run {dagster_run_id}"):
        yield
    with suppress(AutomationError):  # the watchdog removes it later
        act(end_step)
