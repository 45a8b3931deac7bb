"""The client of this machine's database."""

import os
import socket
from collections.abc import Sequence
from functools import cached_property

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.client.org_jobs import LocalOrgJobs
from automation_pipeline.cli.client.ports import Worker
from automation_pipeline.core.launching import LaunchFacts, NotStartedError, launch_obstacle
from automation_pipeline.storage.heartbeats import DAEMON, seconds_since_heartbeat
from automation_pipeline.storage.run_requests import hold_requests, launch_states


class LocalLaunching:
    def __init__(self, services: Services) -> None:
        self._services = services

    @cached_property
    def _probe(self):  # noqa: ANN202  the type of an adapter stays with it
        return self._services.dagster_probe()

    def probe(self) -> None:
        self._probe.begin()

    def missing(self, keys: Sequence[str], waited_seconds: float) -> NotStartedError | None:
        with self._services.database.reading() as session:
            requests, tick = launch_states(session, keys), seconds_since_heartbeat(session, DAEMON)
        return launch_obstacle(LaunchFacts(requests, tick, self._probe.facts(), waited_seconds))

    def work_here(self, keys: Sequence[str]) -> Worker:
        """What a daemon was offered already is left to it."""
        with self._services.database.transaction() as session:
            held = hold_requests(session, keys, f"{socket.gethostname()}:{os.getpid()}")
        return self._services.local_worker(held)


class LocalClient:
    def __init__(self, services: Services) -> None:
        self._services = services
        self.clock = services.clock
        self.launching = LocalLaunching(services)
        self.org_jobs = LocalOrgJobs(services)
