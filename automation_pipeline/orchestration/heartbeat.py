"""Says that a run is alive, from a thread beside the step, for as long as the step works."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

from automation_pipeline.automation.domain.run import RunTicket
from automation_pipeline.automation.stages.keep_alive import keep_alive
from automation_pipeline.bootstrap import Services
from automation_pipeline.orchestration.beside import repeating


def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@contextmanager
def beating(ticket: RunTicket, services: Services) -> Generator[None]:
    beat = partial(keep_alive, ticket, worker_name(), database=services.database)
    with repeating(beat, services.settings.automation_heartbeat_seconds, f"No heartbeat for run {ticket.run_id}"):
        yield
