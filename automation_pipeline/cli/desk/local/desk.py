"""The desk of this process."""

from collections.abc import Sequence

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.desk.local.audit_configs import LocalConfigs
from automation_pipeline.cli.desk.local.audits import LocalAudits
from automation_pipeline.cli.desk.local.companies import LocalCompanies
from automation_pipeline.cli.desk.local.fiches import LocalFiches, LocalTranscriptions
from automation_pipeline.cli.desk.local.launching import LocalLaunching
from automation_pipeline.cli.desk.local.org_jobs import LocalOrgJobs
from automation_pipeline.cli.desk.local.pricing import LocalPricing
from automation_pipeline.cli.desk.local.runs import LocalRuns
from automation_pipeline.cli.desk.local.schedules import LocalSchedules
from automation_pipeline.cli.desk.local.tokens import LocalTokens
from automation_pipeline.vitals.checks import examine
from automation_pipeline.vitals.finding import Finding


class LocalDesk:
    def __init__(self, services: Services) -> None:
        self._services = services
        self.clock = services.clock
        self.launching = LocalLaunching(services)
        self.schedules = LocalSchedules(services)
        self.runs = LocalRuns(services)
        self.fiches = LocalFiches(services)
        self.transcriptions = LocalTranscriptions(services)
        self.audits = LocalAudits(services)
        self.audit_configs = LocalConfigs(services)
        self.tokens = LocalTokens(services)
        self.companies = LocalCompanies(services)
        self.pricing = LocalPricing(services)
        self.org_jobs = LocalOrgJobs(services)

    def examine(self) -> Sequence[Finding]:
        return examine(self._services)
