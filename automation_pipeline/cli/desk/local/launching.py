"""Whether work begins, by the database and by a look at Dagster; and work done here."""

import os
import socket
from collections.abc import Sequence
from functools import cached_property

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.desk.ports import Worker
from automation_pipeline.core.launching import LaunchFacts, NothingBeginsError, what_is_missing
from automation_pipeline.storage.pulses import DAEMON, seconds_since_beat
from automation_pipeline.storage.run_requests import hold_requests, launch_states


class LocalLaunching:
    def __init__(self, services: Services) -> None:
        self._services = services

    @cached_property
    def _probe(self):  # noqa: ANN202  the type of an adapter stays with it
        return self._services.dagster_probe()

    def probe(self) -> None:
        self._probe.begin()

    def missing(self, keys: Sequence[str], waited_seconds: float) -> NothingBeginsError | None:
        with self._services.database.reading() as session:
            requests, tick = launch_states(session, keys), seconds_since_beat(session, DAEMON)
        return what_is_missing(LaunchFacts(requests, tick, self._probe.facts(), waited_seconds))

    def work_here(self, keys: Sequence[str]) -> Worker:
        """What a daemon was offered already is left to it."""
        with self._services.database.transaction() as session:
            held = hold_requests(session, keys, f"{socket.gethostname()}:{os.getpid()}")
        return self._services.local_worker(held)
