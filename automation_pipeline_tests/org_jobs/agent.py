"""An agent for tests: a host with one server, which claims jobs and reports on them."""

from dataclasses import dataclass
from typing import Any

from automation_pipeline.org_jobs.agents import (
    claim_jobs,
    list_held_jobs,
    report_progress,
    report_result,
)
from automation_pipeline.org_jobs.models.agents import AgentJob, Orders
from automation_pipeline.org_jobs.models.jobs import JobType, OrgJobRun, RetryPolicy
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.runs import reap_jobs
from automation_pipeline.org_jobs.tables import JobRunRow
from automation_pipeline_tests.org_jobs.data import CHANGING, ORG, OrgJobsData

AT_ONCE = RetryPolicy(backoff_ms=0)


@dataclass
class Agent:
    data: OrgJobsData
    host_id: int
    server_id: int
    org_id: str

    @property
    def services(self) -> dict[str, Any]:
        return {"database": self.data.database, "clock": self.data.clock}

    def add_job(
        self, of_type: JobType = CHANGING, *, retry: RetryPolicy = AT_ONCE, **of_job: Any
    ) -> int:
        """Insert a job for the agent's server; return its id."""
        return self.data.job(
            self.org_id, of_type, retry=retry, server_instance_id=self.server_id, **of_job
        )

    def claim(self, most: int = 1, within: OrgScope = ALL_ORGANISATIONS) -> list[AgentJob]:
        return claim_jobs(self.host_id, within=within, most=most, **self.services)

    def claimed(self, **of_job: Any) -> AgentJob:
        """Insert a job and claim it."""
        self.add_job(**of_job)
        (job,) = self.claim()
        return job

    def started(self, **of_job: Any) -> AgentJob:
        job = self.claimed(**of_job)
        self.progress(job)
        return job

    def progress(
        self, job: AgentJob, within: OrgScope = ALL_ORGANISATIONS, **given: object
    ) -> Orders:
        return report_progress(job.run_id, attempt_of(job) | given, within=within, **self.services)

    def result(
        self, job: AgentJob, status: str, within: OrgScope = ALL_ORGANISATIONS, **results: object
    ) -> OrgJobRun:
        given = attempt_of(job) | {"status": status} | results
        return report_result(
            job.run_id, given, within=within, meter=self.data.meter, **self.services
        )

    def held(self) -> list[AgentJob]:
        return list_held_jobs(self.host_id, within=ALL_ORGANISATIONS, database=self.data.database)

    def reap(self, job: AgentJob) -> JobRunRow:
        """Expire the lease and reap the attempt."""
        self.data.expire_lease(job.run_id)
        reap_jobs(meter=self.data.meter, **self.services)
        return self.data.run_by_id(job.run_id)


def make_agent(data: OrgJobsData, org_id: str = ORG) -> Agent:
    host_id = data.host(org_id)
    return Agent(data, host_id, data.server(org_id, host_id=host_id), org_id)


def attempt_of(job: AgentJob) -> dict[str, object]:
    return {"attemptNo": job.attempt_no, "leaseToken": job.lease_token}
