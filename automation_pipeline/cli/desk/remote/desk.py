"""The desk of another machine's API."""

from collections.abc import Sequence
from typing import cast

from automation_pipeline.cli.desk.remote.api import Api, data_of, read
from automation_pipeline.cli.desk.remote.audit_configs import RemoteConfigs
from automation_pipeline.cli.desk.remote.audits import RemoteAudits
from automation_pipeline.cli.desk.remote.companies import RemoteCompanies
from automation_pipeline.cli.desk.remote.fiches import RemoteFiches, RemoteTranscriptions
from automation_pipeline.cli.desk.remote.launching import RemoteLaunching
from automation_pipeline.cli.desk.remote.org_jobs import RemoteOrgJobs
from automation_pipeline.cli.desk.remote.pricing import RemotePricing
from automation_pipeline.cli.desk.remote.runs import RemoteRuns
from automation_pipeline.cli.desk.remote.schedules import RemoteSchedules
from automation_pipeline.cli.desk.remote.tokens import RemoteTokens
from automation_pipeline.core.clock import Clock
from automation_pipeline.vitals.finding import Finding, State


class RemoteDesk:
    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self.clock = clock
        self.launching = RemoteLaunching(api)
        self.schedules = RemoteSchedules(api)
        self.runs = RemoteRuns(api)
        self.fiches = RemoteFiches(api)
        self.transcriptions = RemoteTranscriptions(api)
        self.audits = RemoteAudits(api)
        self.audit_configs = RemoteConfigs(api)
        self.tokens = RemoteTokens(api)
        self.companies = RemoteCompanies(api)
        self.pricing = RemotePricing(api)
        self.org_jobs = RemoteOrgJobs(api)

    def examine(self) -> Sequence[Finding]:
        checks = data_of(self._api.get("/api/automation/diagnostic"))["checks"]
        listed = cast("Sequence[dict[str, object]]", checks)
        return read(lambda: [_finding(one) for one in listed])


def _finding(one: dict[str, object]) -> Finding:
    return Finding(str(one["name"]), State(str(one["state"])), str(one["detail"]), bool(one["required"]))
