"""Whether work begins on another machine: its readiness says whether its daemon ticks."""

from collections.abc import Sequence
from typing import cast

from automation_pipeline.cli.desk.ports import Worker
from automation_pipeline.cli.desk.remote.api import Api
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.launching import NothingBeginsError


class RemoteLaunching:
    def __init__(self, api: Api) -> None:
        self._api = api

    def probe(self) -> None:
        """The other machine looks when it is asked."""

    def missing(self, keys: Sequence[str], waited_seconds: float) -> NothingBeginsError | None:
        del keys, waited_seconds  # its readiness is about all work
        checks = cast("Sequence[dict[str, object]]", self._api.get("/health/ready").get("checks") or ())
        for check in checks:
            if check.get("name") == "daemon" and check.get("state") == "failed":
                detail = str(check.get("detail", "")).rstrip(".")
                return NothingBeginsError("NO_DAEMON", f"Dagster's daemon there {detail}")
        return None

    def work_here(self, keys: Sequence[str]) -> Worker:
        del keys
        raise InvalidInputError("--here works on the machine where it is typed: leave out --api.")
