"""The client of another machine's HTTP API."""

from collections.abc import Sequence
from typing import cast

from automation_pipeline.cli.client.http import Api
from automation_pipeline.cli.client.org_jobs import RemoteOrgJobs
from automation_pipeline.cli.client.ports import Worker
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.launching import NotStartedError


class RemoteLaunching:
    def __init__(self, api: Api) -> None:
        self._api = api

    def probe(self) -> None:
        """The other machine looks when it is asked."""

    def missing(self, keys: Sequence[str], waited_seconds: float) -> NotStartedError | None:
        del keys, waited_seconds  # its readiness is about all work
        checks = cast(
            "Sequence[dict[str, object]]", self._api.get("/health/ready").get("checks") or ()
        )
        for check in checks:
            if check.get("name") == "daemon" and check.get("state") == "failed":
                detail = str(check.get("detail", "")).rstrip(".")
                return NotStartedError("NO_DAEMON", f"Dagster's daemon there {detail}")
        return None

    def work_here(self, keys: Sequence[str]) -> Worker:
        del keys
        raise InvalidInputError("--here works on the machine where it is typed: leave out --api.")


class RemoteClient:
    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self.clock = clock
        self.launching = RemoteLaunching(api)
        self.org_jobs = RemoteOrgJobs(api)
