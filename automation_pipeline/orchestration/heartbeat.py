"""Says that a run is alive, from a thread beside the step, for as long as the step works."""

import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial

from automation_pipeline.automation.domain.run import RunTicket
from automation_pipeline.automation.stages.keep_alive import keep_alive
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.logs import log

_log = log(__name__)


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@contextmanager
def beating(ticket: RunTicket, services: Services) -> Generator[None]:
    ended = threading.Event()
    beat = partial(copy_context().run, _beat, ticket, services, ended)
    thread = threading.Thread(target=beat, daemon=True, name="heartbeat")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _beat(ticket: RunTicket, services: Services, ended: threading.Event) -> None:
    while not ended.is_set():
        try:
            keep_alive(ticket, worker_name(), database=services.database)
        except Exception as error:  # noqa: BLE001  a beat must never end the beating: the step itself finds out
            _log.warning("No heartbeat for run %s: %s", ticket.run_id, error)
        ended.wait(services.settings.automation_heartbeat_seconds)
